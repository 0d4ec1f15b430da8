package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/joining"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
)

func nameOf(ds *appsv1.DaemonSet) types.NamespacedName {
	return types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name}
}

// SetSet tells of a DaemonSet.
func (s *Server) SetSet(ds *appsv1.DaemonSet) {
	standing := plan.StandingOf(ds)
	s.locked(func() { s.sets[nameOf(ds)] = standing })
}

// node answers for a Node that is created. A node joins whatever happens here: one that cannot be decided about stays
// open, and the leader tells.
func (s *Server) node(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, string) {
	out := admitted()
	patch, what, err := s.join(ctx, r)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell whether a node is to be closed; it stays open", "node", r.Name)
		return out, "unknown"
	}
	out.Patch = patch
	return out, what
}

func (s *Server) join(ctx context.Context, r *admissionv1.AdmissionRequest) ([]byte, string, error) {
	var n corev1.Node
	err := json.Unmarshal(r.Object.Raw, &n)
	if err != nil {
		return nil, "", fmt.Errorf("read the Node: %w", err)
	}
	list, err := s.cfg.Own.NodeStartups().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("list NodeStartups: %w", err)
	}
	all := make([]*v1alpha1.NodeStartup, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	patch, closed, err := joining.Join(&n, all, func(name types.NamespacedName) plan.Standing { return s.sets[name] },
		time.Now())
	if err != nil {
		return nil, "", fmt.Errorf("make the change: %w", err)
	}
	if closed {
		return patch, "closed", nil
	}
	return patch, "left open", nil
}
