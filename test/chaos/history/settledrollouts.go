package history

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/wants"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// OwnerLabel is the label of a rollout with the UID of its DaemonSet.
const OwnerLabel = "everynode.io/daemonset-uid"

// PolicyOf is the policy that the DaemonSet's changes follow; nil if they follow none.
func (s State) PolicyOf(d *appsv1.DaemonSet) *v1alpha1.RolloutPolicy {
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return nil
	}
	return waves.Counting(s.Policies, d)
}

// rollouts judges where the rollouts say that they are.
func (s State) rollouts() (out []string) {
	sets := map[string]*appsv1.DaemonSet{}
	for _, d := range s.Sets {
		sets[d.Name] = d
	}
	have := map[string]bool{}
	for _, r := range s.Rollouts {
		d := sets[r.Name]
		have[r.Name] = d != nil && r.Labels[OwnerLabel] == string(d.UID)
		switch {
		case have[r.Name]:
			for _, text := range s.rollout(d, r) {
				out = append(out, "rollout "+r.Name+": "+text)
			}
		case !gone(r):
			out = append(out, "rollout "+r.Name+" does not say that its DaemonSet is gone")
		}
	}
	for name, d := range sets {
		if s.PolicyOf(d) != nil && !have[name] {
			out = append(out, "DaemonSet "+name+" follows a policy and has no rollout")
		}
	}
	return out
}

// gone reports whether the rollout says that it has outlived its DaemonSet.
func gone(r *v1alpha1.DaemonSetRollout) bool {
	return meta.IsStatusConditionTrue(r.Status.Conditions, "DaemonSetGone")
}

// PolicyGone reports whether the rollout says that it has outlived its policy.
func PolicyGone(r *v1alpha1.DaemonSetRollout) bool {
	return meta.IsStatusConditionTrue(r.Status.Conditions, "PolicyGone")
}

// stays reports whether the rollout says that it has outlived its policy, and holds what must, or speaks of copies of
// content.
func stays(r *v1alpha1.DaemonSetRollout) bool {
	return PolicyGone(r) && (r.Spec.Paused || len(r.Status.FailedRevisions)+len(r.Status.EarlierFailures) > 0 ||
		r.Status.Content != nil)
}

// rollout judges one that has its DaemonSet.
func (s State) rollout(d *appsv1.DaemonSet, r *v1alpha1.DaemonSetRollout) []string {
	switch {
	case d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case s.PolicyOf(d) == nil && stays(r):
		return nil
	case s.PolicyOf(d) == nil:
		return []string{"is there, and its DaemonSet follows no policy"}
	case r.Status.DaemonSetGeneration != d.Generation || r.Status.ObservedGeneration != r.Generation:
		return []string{"does not speak of what is written now"}
	case r.Status.Phase != v1alpha1.PhaseComplete:
		return []string{fmt.Sprintf("is %s: %s", r.Status.Phase, r.Status.Message)}
	}
	return s.complete(d, r)
}

// complete judges a rollout that says it is.
func (s State) complete(d *appsv1.DaemonSet, r *v1alpha1.DaemonSetRollout) (out []string) {
	current, _ := s.revisions(d)
	wanted, target := s.desired(d), r.Status.TargetRevision // without nodes it is not stable before it has run
	if wanted > 0 && target != r.Status.StableRevision || !s.newest(d, current, target) {
		out = append(out, fmt.Sprintf("is complete with stable revision %s and target %s, the newest is %s", r.Status.StableRevision, r.Status.TargetRevision, current))
	}
	sum := 0
	for _, n := range r.Status.Counts {
		sum += int(n)
	}
	if sum != len(s.Nodes) {
		out = append(out, fmt.Sprintf("counts %d nodes, there are %d", sum, len(s.Nodes)))
	}
	in, done := 0, 0
	for _, step := range r.Status.Steps {
		in, done = in+int(step.Nodes), done+int(step.Done)
	}
	if in != wanted || done != wanted {
		out = append(out, fmt.Sprintf("its steps have %d nodes, %d of them done, and it is for %d", in, done, wanted))
	}
	return out
}

// desired counts the nodes that are to have the DaemonSet.
func (s State) desired(d *appsv1.DaemonSet) (count int) {
	for _, n := range s.Nodes {
		if wants.Judge(d, n) == wants.ShouldRun {
			count++
		}
	}
	return count
}

// HasNewest reports whether a pod is of the newest revision, so that no rollout replaces it.
func (s State) HasNewest(d *appsv1.DaemonSet, p *corev1.Pod) bool {
	current, _ := s.revisions(d)
	return s.newest(d, current, revision.Of(p))
}

// newest reports whether a revision is that of the newest template, with what its objects hold now where the policy
// wants that.
func (s State) newest(d *appsv1.DaemonSet, template, of string) bool {
	hash, id := revision.Split(of)
	p := s.PolicyOf(d)
	if hash != template || !revision.WithContent(p) {
		return revision.Join(hash, id) == template
	}
	held, known := revision.Values(s.Contents)[id]
	refs := revision.Takes(p.Spec.Content, revision.Named(&d.Spec.Template.Spec))
	return known && held.Equal(revision.Written(s.Contents).Of(refs))
}
