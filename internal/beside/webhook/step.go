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
	"github.com/everynode/everynode/internal/controller/daemonset/course/begun"
)

// errNotWritten says that the rollout does not speak of the policy as it is yet, and so not of the node's step.
var errNotWritten = errors.New("the rollout's status is of another policy")

// isOf reports whether a rollout's status speaks of the policy as it is. A leader of an earlier version does not say.
func isOf(s *v1alpha1.DaemonSetRolloutStatus, p *v1alpha1.RolloutPolicy) bool {
	return s.Cutoffs == nil ||
		s.Policy != nil && s.Policy.UID == p.UID && s.Cutoffs.PolicyGeneration == p.Generation
}

// assigned is the revision that a pod made now for its node is to have. Where it is not known whether its step has
// begun that is the stable one: the leader takes no node of a step that is not written.
func (s *Server) assigned(
	ctx context.Context, r *admissionv1.AdmissionRequest, is *change, by *appsv1.ControllerRevision,
) (string, error) {
	ds, status := is.ds, &is.rollout.Status
	want, settled := admit.Settled(status)
	if settled {
		return want, nil
	}
	policy, err := s.followed(ctx, is)
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
	var compiled *rolloutpolicy.Policy
	var at rolloutpolicy.Step
	if isOf(status, policy) && (status.Cutoffs == nil || status.Cutoffs.Incomplete) {
		compiled, at, err = s.stepSeen(ctx, ds.UID, policy, by, node)
	} else {
		compiled, at, err = s.stepWritten(ctx, status, policy, node)
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
// Where all nodes are in the steps that have begun it is the last of these: the node need not be read for that. In a
// policy that was edited, or is another one, a wave may stand before the step under way that was not there: a node's
// step counts then if all waves up to it are named as some that have begun, and take nodes by labels.
func (s *Server) stepWritten(ctx context.Context, status *v1alpha1.DaemonSetRolloutStatus,
	policy *v1alpha1.RolloutPolicy, node string) (*rolloutpolicy.Policy, rolloutpolicy.Step, error) {
	compiled, err := rolloutpolicy.Follow(policy, time.LoadLocation)
	if err != nil {
		return nil, rolloutpolicy.Step{}, fmt.Errorf("policy %s: %w: %w", policy.Name, steps.ErrNotFollowed, err)
	}
	written := isOf(status, policy)
	open, known := compiled.StepNamed(status.Step)
	if written && known && compiled.TakesAll(open) {
		return compiled, open, nil
	}
	n, err := s.readNode(ctx, node)
	if err != nil {
		return nil, rolloutpolicy.Step{}, err
	}
	at := compiled.StepBy(n.Name, n.Labels, status.Cutoffs.Steps)
	if !written && (compiled.ByNumber(at) || !begun.InStatus(compiled, status).Has(compiled, at)) {
		return nil, rolloutpolicy.Step{}, errNotWritten
	}
	return compiled, at, nil
}

// stepSeen is a node's step by all nodes that this replica has seen: where a leader of an earlier version has written
// nothing about steps by number, or there are too many to be written.
func (s *Server) stepSeen(ctx context.Context, set types.UID, policy *v1alpha1.RolloutPolicy,
	by *appsv1.ControllerRevision, node string) (*rolloutpolicy.Policy, rolloutpolicy.Step, error) {
	n, err := s.readNode(ctx, node)
	if err != nil {
		return nil, rolloutpolicy.Step{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.steps.Knows(n.Name) {
		s.steps.SetNode(n)
	}
	return s.steps.Step(set, policy, by, n.Name)
}

func (s *Server) readNode(ctx context.Context, name string) (*corev1.Node, error) {
	n, err := s.cfg.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	return n, nil
}
