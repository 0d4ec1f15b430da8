package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/steps"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// errNotWritten says that the rollout does not speak of the policy as it is yet, and so not of the nodes in its steps.
var errNotWritten = errors.New("the rollout's status is of another policy")

// assigned is the revision that a pod made now for its node is to have. Where it is not known whether its step has
// begun that is the stable one: the leader takes no node of a step that is not written.
func (s *Server) assigned(
	ctx context.Context, r *admissionv1.AdmissionRequest, ds *appsv1.DaemonSet, status *v1alpha1.DaemonSetRolloutStatus,
	by *appsv1.ControllerRevision,
) (string, error) {
	want, settled := admit.Settled(status)
	if settled {
		return want, nil
	}
	policy, err := s.policy(ctx, ds.Namespace, ds.Labels)
	if err != nil {
		return "", err
	}
	if policy == nil {
		return admit.Assigned(status, nil, rolloutpolicy.Step{}), nil
	}
	node := admit.Node(r.Object.Raw)
	if node == "" || by == nil {
		return "", errors.New("it is not made for one node, or of no revision that is known")
	}
	n, err := s.cfg.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read node %s: %w", node, err)
	}
	var compiled *rolloutpolicy.Policy
	var at rolloutpolicy.Step
	if status.Cutoffs == nil || status.Cutoffs.Incomplete {
		compiled, at, err = s.stepSeen(ds.UID, policy, by, n)
	} else {
		compiled, at, err = stepWritten(status, policy, n)
	}
	switch {
	case errors.Is(err, steps.ErrNotFollowed), errors.Is(err, errNotWritten): // whoever leads takes nothing by it either
		return admit.Assigned(status, nil, rolloutpolicy.Step{}), nil
	case err != nil:
		return "", err
	}
	return admit.Assigned(status, compiled, at), nil
}

// stepWritten is a node's step by its labels, and by what the rollout's status says of steps that take nodes by number.
func stepWritten(status *v1alpha1.DaemonSetRolloutStatus, policy *v1alpha1.RolloutPolicy, n *corev1.Node) (
	*rolloutpolicy.Policy, rolloutpolicy.Step, error) {
	compiled, err := rolloutpolicy.Follow(policy, time.LoadLocation)
	if err != nil {
		return nil, rolloutpolicy.Step{}, fmt.Errorf("policy %s: %w: %w", policy.Name, steps.ErrNotFollowed, err)
	}
	written := status.Cutoffs
	open, known := compiled.StepNamed(status.Step)
	same := status.Policy != nil && status.Policy.UID == policy.UID && written.PolicyGeneration == policy.Generation
	if known && compiled.ByNumber(open) && !same {
		return nil, rolloutpolicy.Step{}, errNotWritten
	}
	return compiled, compiled.StepBy(n.Name, n.Labels, written.Steps), nil
}

// stepSeen is a node's step by all nodes that this replica has seen: where a leader of an earlier version has written
// nothing about steps by number, or there are too many to be written.
func (s *Server) stepSeen(set types.UID, policy *v1alpha1.RolloutPolicy, by *appsv1.ControllerRevision,
	n *corev1.Node) (*rolloutpolicy.Policy, rolloutpolicy.Step, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.steps.Knows(n.Name) {
		s.steps.SetNode(n)
	}
	return s.steps.Step(set, policy, by, n.Name)
}
