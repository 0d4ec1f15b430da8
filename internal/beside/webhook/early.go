package webhook

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// lack is since when a DaemonSet was seen to have no rollout that speaks of it, and when that was seen last.
type lack struct{ since, seen time.Time }

// lacking notes that a DaemonSet has no rollout, and returns for how long that is known. Pods that wait are asked about
// again before long: where nobody was, it is another time.
func (s *Server) lacking(of types.NamespacedName, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, known := s.lacks[of]
	if !known || now.Sub(is.seen) > admit.WaitsForRollout {
		is.since = now
	}
	is.seen = now
	s.lacks[of] = is
	return now.Sub(is.since)
}

// early answers for a pod of a DaemonSet of whose change nothing is known yet. Where images are pinned the pod waits.
func (s *Server) early(ctx context.Context, r *admissionv1.AdmissionRequest, ds *appsv1.DaemonSet, made string) (
	admit.Answer, error) {
	policy, err := s.policy(ctx, ds.Namespace, ds.Labels)
	if err == nil && admit.HasRun(ds, policy != nil) {
		return admit.Unwritten(policy != nil, s.lacking(nameOf(ds), time.Now())), nil
	}
	if err != nil || policy == nil {
		return admit.Answer{Why: "its DaemonSet follows no policy"}, err
	}
	compiled, err := rolloutpolicy.Follow(policy, time.LoadLocation)
	if err != nil {
		return admit.Answer{Why: "its policy cannot be followed"}, nil
	}
	now := time.Now()
	var variants []v1alpha1.DaemonSetVariant
	if admit.IsNew(ds, now) {
		variants, err = s.variantsIn(ctx, ds.Namespace)
		if err != nil {
			return admit.Answer{}, err
		}
	}
	a := admit.Early(ds, compiled, variants, now)
	if a.Verb != admit.AsMade || !compiled.PinsImages || made == "" || !s.LetsPodsWait() {
		return a, nil
	}
	in := admit.NewPod{Pod: r.Object.Raw, Want: made, First: true}
	in.Revisions, err = s.revisionsOf(ctx, r.Namespace, ds.UID, made)
	if err != nil {
		return admit.Answer{}, err
	}
	return admit.Pod(in), nil
}

// variantsIn are the variants of a namespace; none where the kind was taken away.
func (s *Server) variantsIn(ctx context.Context, namespace string) ([]v1alpha1.DaemonSetVariant, error) {
	list, err := s.cfg.Own.DaemonSetVariants(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the DaemonSetVariants of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}
