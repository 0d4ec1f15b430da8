package plan

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/survey"
)

// beside has both DaemonSets be as their author wrote them, and says what is otherwise where another controller makes
// the pods.
func (p *planner) beside(s *survey.Survey, old, new *appsv1.DaemonSet) (was, is *appsv1.DaemonSet) {
	if !s.Beside() {
		return old, new
	}
	p.warnBeside(s, old, new)
	is = asWritten(old, new)
	if old != nil {
		was = admit.AsWritten(old)
	}
	return was, is
}

// asWritten is a DaemonSet with its author's strategy, where another controller makes the pods. It follows a policy
// also where the server was not asked, and so has not taken it over.
func asWritten(old, new *appsv1.DaemonSet) *appsv1.DaemonSet {
	if old == nil || !admit.Taken(old) || new.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return admit.AsWritten(new)
	}
	out := *new
	out.Spec.UpdateStrategy = admit.WithoutSurge(new.Spec.UpdateStrategy)
	return &out
}

// warnBeside says what is otherwise where another controller makes the pods.
func (p *planner) warnBeside(s *survey.Survey, old, new *appsv1.DaemonSet) {
	if s.UnusedVariant(new) {
		p.later("no DaemonSetVariant is used for it: another DaemonSet controller makes its pods, and it follows no " +
			"RolloutPolicy")
	}
	written := new.Spec.UpdateStrategy
	if s.Policy(new) == nil || written.Type == appsv1.OnDeleteDaemonSetStrategyType && !admit.Taken(new) {
		return // it follows none
	}
	if admit.Surges(new) {
		p.later(admit.NoSurge)
	}
	if old == nil {
		p.later("its first pods come to all nodes at once: another DaemonSet controller makes them")
		return
	}
	m := admit.Moves{From: &old.Spec.Template.Spec, To: &new.Spec.Template.Spec}
	refusal, err := m.Refusal(s.Nodes)
	switch {
	case err != nil:
		p.later("what becomes of the placement is not known: " + err.Error())
		return
	case refusal == "":
		return
	}
	if r := s.Rollout(old); r != nil {
		m.Approved = r.Annotations[v1alpha1.ApprovedPlacement]
	}
	hash, err := m.Hash()
	if err == nil && hash == m.Approved {
		p.later("nodes are chosen by the new template at once, in no steps, and a rollback does not undo it; " +
			"somebody has approved that")
		return
	}
	p.later(fmt.Sprintf("it is refused until then: %s: everynode rollout approve daemonset/%s -n %s --placement %s",
		refusal, new.Name, new.Namespace, hash))
}

// later adds a warning to those that come after the present state of things.
func (p *planner) later(text string) { p.besides = append(p.besides, text) }
