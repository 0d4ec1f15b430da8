package webhook

import (
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/steps"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Wrong are those of a DaemonSet's pods that have a revision which is not their node's. by is the revision of the
// newest template, by which nodes are chosen. Pods of nodes that it does not choose are left out: they go anyway.
func (s *Server) Wrong(set types.UID, policy *v1alpha1.RolloutPolicy, by *appsv1.ControllerRevision,
	status *v1alpha1.DaemonSetRolloutStatus, pods []*corev1.Pod) (wrong []*corev1.Pod, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		revision, node := admit.Revision(status, p.Labels), pod.TargetNode(p)
		if content.WithVariants(revision, "") == content.WithVariants(status.StableRevision, "") {
			continue
		}
		compiled, at, err := s.steps.Step(set, policy, by, node)
		if errors.Is(err, steps.ErrNotChosen) {
			continue
		}
		if err != nil {
			return nil, err
		}
		made := admit.Made{Revision: revision, Created: p.CreationTimestamp.Time, At: at}
		is, err := admit.IsWrong(status, compiled, made)
		if err != nil {
			return nil, err
		}
		if is {
			wrong = append(wrong, p)
		}
	}
	return wrong, nil
}
