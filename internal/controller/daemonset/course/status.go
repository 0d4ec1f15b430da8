package course

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/failures"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Phase is what the rollout does, and why.
func (c *Course) Phase() (v1alpha1.Phase, string) {
	c.stands()
	if c.policy != nil && (c.phase == v1alpha1.PhaseProgressing || c.phase == v1alpha1.PhaseRolledBack &&
		c.queue.Totals[standing.Pending]+c.queue.Totals[standing.Held] > 0 && !c.spec.Paused) {
		return c.phase, c.message + c.progress()
	}
	return c.phase, c.message
}

// Stage is the target, the step and the number of the change under way, as Status tells them.
func (c *Course) Stage() (target, step string, change int64) {
	switch {
	case c.changing && c.state.unread != nil && c.policy == nil:
		step = c.state.unread.Step
	case c.changing && !c.isNew && c.policy != nil:
		step = c.policy.StepName(c.state.open)
	}
	return c.state.target, step, c.state.consent.Change()
}

// Cutoffs say who is in the steps that have begun, for those that answer beside another controller; nil if all are.
func (c *Course) Cutoffs(generation int64) *v1alpha1.Cutoffs {
	if !c.ds.Beside || !c.changing || c.isNew || c.back || c.policy == nil {
		return nil
	}
	return c.fleet.Cutoffs(c.state.open, generation)
}

// Status is where the rollout is, without conditions and observed generation. It is
// all that Start needs to go on from there.
func (c *Course) Status() v1alpha1.DaemonSetRolloutStatus {
	phase, message := c.Phase()
	out := v1alpha1.DaemonSetRolloutStatus{
		Phase: phase, Message: message, StableRevision: c.state.stable, TargetRevision: c.state.target,
		FailedRevisions: slices.Clone(c.state.Failed), EarlierFailures: slices.Clone(c.state.Earlier),
		ForgottenFailures: c.state.Forgotten,
		Counts:            map[string]int32{},
	}
	c.state.consent.Tell(&out)
	for verdict, n := range c.counts {
		if n > 0 {
			out.Counts[string(verdict)] = n
		}
	}
	dead := c.changing && c.recent.graves.Any()
	if c.state.failures.Count() > 0 || !c.state.since.IsZero() || dead {
		out.Failures = c.state.failures.Status(c.state.target)
		c.recent.graves.Tell(out.Failures)
		if since := metav1.NewTime(c.state.since); !since.IsZero() {
			after := metav1.NewTime(c.state.after)
			out.Failures.Since, out.Failures.After = &since, &after
		}
	}
	out.Replacing = c.between()
	if u := c.state.unread; u != nil && c.changing {
		out.Step, out.StepStarted, out.LastDeparture, out.Steps = u.Step, u.StepStarted, u.LastDeparture, slices.Clone(u.Steps)
		out.Soaked, out.SoakedAfter = u.Soaked, u.SoakedAfter
	}
	if c.policy == nil {
		return out
	}
	if c.changing && !c.isNew {
		out.Step = c.policy.StepName(c.state.open)
		at := metav1.NewTime(c.state.openSince)
		out.StepStarted = &at
		if left := metav1.NewTime(c.state.left); !left.IsZero() {
			out.LastDeparture = &left
		}
		if c.stepSoaks() {
			c.state.soak.Tell(&out, c.now, c.policy.Waves[c.state.open.Wave].Soak)
		}
	}
	out.Fetch = c.fetchStatus()
	out.Steps = c.stepStatuses()
	return out
}

// stepStatuses says where all steps are, also one without nodes that the next process has to know.
func (c *Course) stepStatuses() (out []v1alpha1.StepStatus) {
	steps, open := c.fleet.Steps(), c.state.open
	if c.changing && open == (rolloutpolicy.Step{}) && c.queue.Steps[open] == nil && c.hadNodes() {
		out = append(out, v1alpha1.StepStatus{Name: c.policy.StepName(open)})
	}
	for _, at := range steps[:min(len(steps), rolloutpolicy.MaxSteps)] {
		out = append(out, c.queue.Steps[at].Status(c.policy.StepName(at)))
	}
	return append(out, c.empty(steps)...)
}

// empty is the step behind an unapproved one, if no step that has nodes, which are in order, is: for the next process.
func (c *Course) empty(steps []rolloutpolicy.Step) []v1alpha1.StepStatus {
	known := len(steps)
	more := known > 0 && steps[known-1].Compare(c.state.open) > 0
	if !c.changing || more || known >= rolloutpolicy.MaxSteps || !c.skips() {
		return nil
	}
	return []v1alpha1.StepStatus{{Name: c.state.beyond}}
}

// between names nodes that have no daemon to say what the one before was like; nil if there is nothing to say of any.
func (c *Course) between() *v1alpha1.Replacing {
	out := c.replacing.Tell(c.absentees, c.now, failures.Kept)
	if since := metav1.NewTime(c.state.returns); !since.IsZero() {
		out = cmp.Or(out, &v1alpha1.Replacing{})
		out.Since, out.Undone = &since, c.undone
	}
	return out
}

// Failing counts the failures of the target by their reason.
func (c *Course) Failing() map[standing.Reason]int { return c.state.failures.Reasons() }

// StepOf is the name of the step that a node belongs to; "" for one that is not in the fleet.
func (c *Course) StepOf(name string) string {
	if n := c.nodes[name]; n != nil && c.policy != nil && n.chosen.Any() {
		return c.policy.StepName(n.step)
	}
	return ""
}

// Between reports whether the node uses up the limit by what is under way there, such as the end of its old pod.
func (c *Course) Between(name string) bool {
	n := c.nodes[name]
	return n != nil && n.view.cause == standing.UnderWay && n.view.Has(standing.Ours)
}

// Verdict is where a node stands, and why.
func (c *Course) Verdict(name string) (standing.Verdict, string) {
	n := c.nodes[name]
	if n == nil {
		return standing.NotSelected, "there is no such node"
	}
	if n.view.State == standing.Untouched {
		return standing.Waiting, c.waitsFor(n) + c.moves(n)
	}
	return n.view.State.Verdict(), n.view.reason
}
