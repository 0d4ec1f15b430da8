package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// daemonSet answers for a DaemonSet that is written. One of which cannot be told whether it follows a policy is
// refused: a template that slips through goes to every node at once.
func (s *Server) daemonSet(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse,
	string) {
	write, _, err := s.read(ctx, r)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell how a DaemonSet is to be stored", "daemonSet",
			klog.KRef(r.Namespace, r.Name))
		return refused(err.Error()), "unknown"
	}
	stored := admit.DaemonSet(*write)
	if stored.Refusal != "" {
		return refused(stored.Refusal), "refused"
	}
	out := admitted()
	out.Patch = stored.Patch
	if stored.Warning != "" {
		out.Warnings = []string{stored.Warning}
	}
	if stored.Patch == nil {
		return out, "as written"
	}
	return out, "stored otherwise"
}

// placement answers for a DaemonSet that is placed otherwise than before.
func (s *Server) placement(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse,
	string) {
	write, policy, err := s.read(ctx, r)
	refusal := ""
	if err == nil && write.Old == nil {
		err = errors.New("it is not said how the DaemonSet was placed before")
	}
	if err == nil && policy != nil {
		refusal, err = s.moves(ctx, write)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to find out whether a DaemonSet may be placed otherwise", "daemonSet",
			klog.KRef(r.Namespace, r.Name))
		return refused(err.Error()), "unknown"
	}
	if refusal != "" {
		return refused(refusal), "refused"
	}
	return admitted(), "as written"
}

// read says what is written, over what, and which policies there are.
func (s *Server) read(ctx context.Context, r *admissionv1.AdmissionRequest) (*admit.DaemonSetWrite,
	*v1alpha1.RolloutPolicy, error) {
	w := &admit.DaemonSetWrite{New: &appsv1.DaemonSet{}, Returns: r.UserInfo.Username == s.cfg.Account}
	err := json.Unmarshal(r.Object.Raw, w.New)
	if err != nil {
		return nil, nil, fmt.Errorf("read the DaemonSet: %w", err)
	}
	if r.Operation == admissionv1.Update {
		w.Old = &appsv1.DaemonSet{}
		err = json.Unmarshal(r.OldObject.Raw, w.Old)
		if err != nil {
			return nil, nil, fmt.Errorf("read the DaemonSet as it was: %w", err)
		}
	}
	var options struct{ FieldManager string }
	if r.Options.Raw != nil {
		err = json.Unmarshal(r.Options.Raw, &options)
		if err != nil {
			return nil, nil, fmt.Errorf("read the options of the write: %w", err)
		}
	}
	w.Manager = options.FieldManager
	policy, err := s.policy(ctx, r.Namespace, w.New.Labels)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case policy != nil:
		w.Standing = admit.Follows
	case admit.Taken(w.New), w.Old != nil && admit.Taken(w.Old):
		w.Standing = admit.Frozen
	}
	return w, policy, nil
}

// moves says why a write is refused that changes which nodes the DaemonSet is for; "" if it is not.
func (s *Server) moves(ctx context.Context, w *admit.DaemonSetWrite) (string, error) {
	m := admit.Moves{From: &w.Old.Spec.Template.Spec, To: &w.New.Spec.Template.Spec}
	s.mu.Lock()
	nodes := s.steps.Nodes()
	s.mu.Unlock()
	refusal, err := m.Refusal(nodes)
	if err != nil || refusal == "" {
		return "", err
	}
	ds := w.Old
	rollout, err := s.cfg.Own.DaemonSetRollouts(ds.Namespace).Get(ctx, ds.Name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return "", fmt.Errorf("read DaemonSetRollout %s/%s: %w", ds.Namespace, ds.Name, err)
	case err == nil && rollout.Labels[rollouts.OwnerLabel] == string(ds.UID):
		m.Approved = rollout.Annotations[v1alpha1.ApprovedPlacement]
	}
	refusal, err = m.Refusal(nodes)
	if err != nil || refusal == "" {
		return "", err
	}
	hash, err := m.Hash()
	return fmt.Sprintf("%s: everynode rollout approve daemonset/%s -n %s --placement %s", refusal, ds.Name, ds.Namespace,
		hash), err
}
