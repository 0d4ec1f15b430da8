package course

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// keptNames is how many nodes the status names of those that failed, and of those that are
// between two daemons.
const keptNames = 200

// Phase is what the rollout does, and why.
func (c *Course) Phase() (v1alpha1.Phase, string) {
	switch {
	case c.policy == nil:
	case c.phase == v1alpha1.PhaseProgressing, c.phase == v1alpha1.PhaseRolledBack && c.totals.pending+c.totals.held > 0 && !c.spec.Paused:
		return c.phase, c.message + c.progress()
	}
	return c.phase, c.message
}

// Status is where the rollout is, without conditions and observed generation. It is
// all that Start needs to go on from there.
func (c *Course) Status() v1alpha1.DaemonSetRolloutStatus {
	phase, message := c.Phase()
	out := v1alpha1.DaemonSetRolloutStatus{
		Phase: phase, Message: message, StableRevision: c.state.stable, TargetRevision: c.state.target,
		FailedRevisions: slices.Clone(c.state.failed), EarlierFailures: slices.Clone(c.state.earlier), ForgottenFailures: c.state.forgotten,
		Counts: map[string]int32{},
	}
	for verdict, n := range c.counts {
		if n > 0 {
			out.Counts[string(verdict)] = n
		}
	}
	if names := slices.Sorted(maps.Keys(c.state.failures)); len(names) > 0 || c.state.most > 0 || !c.state.since.IsZero() {
		kept := min(len(names), keptNames)
		out.Failures = &v1alpha1.Failures{
			Revision: c.state.target, Nodes: names[:kept], More: int32(c.failures() - kept),
		}
		if since := metav1.NewTime(c.state.since); !since.IsZero() {
			out.Failures.Since = &since
		}
	}
	if c.changing() {
		out.Replacing = c.between()
	}
	if u := c.state.unread; u != nil && c.changing() {
		out.Step, out.StepStarted, out.LastDeparture, out.Steps = u.Step, u.StepStarted, u.LastDeparture, slices.Clone(u.Steps)
	}
	if c.policy == nil {
		return out
	}
	if c.changing() && !c.isNew() {
		out.Step = c.policy.StepName(c.state.open)
		at := metav1.NewTime(c.state.openSince)
		out.StepStarted = &at
		if left := metav1.NewTime(c.state.left); !left.IsZero() {
			out.LastDeparture = &left
		}
	}
	steps := c.fleet.Steps()
	for _, at := range steps[:min(len(steps), rolloutpolicy.MaxSteps)] {
		s := c.steps[at]
		out.Steps = append(out.Steps, v1alpha1.StepStatus{
			Name: c.policy.StepName(at), Nodes: int32(s.nodes), Done: int32(s.done), Failed: int32(s.failed), Unavailable: int32(s.down),
		})
	}
	return out
}

// between names the nodes that have no daemon to say what the one before was like; nil if
// there are none.
func (c *Course) between() *v1alpha1.Replacing {
	if len(c.replacing) == 0 {
		return nil
	}
	out := &v1alpha1.Replacing{}
	type ranked struct {
		rank
		*node
	}
	named := make([]ranked, 0, len(c.replacing))
	for n := range c.replacing {
		named = append(named, ranked{c.rank(n), n})
	}
	slices.SortFunc(named, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.name, b.name)) })
	for _, n := range named[:min(len(named), keptNames)] {
		if n.before == WasAvailable {
			out.Available = append(out.Available, n.name)
		} else {
			out.Unavailable = append(out.Unavailable, n.name)
		}
	}
	slices.Sort(out.Available)
	slices.Sort(out.Unavailable)
	return out
}

// rank says which nodes are named where there is no room for all: first those where a pod
// waits for it, then those where nothing tells what was there.
type rank uint8

const (
	rankReserved rank = iota // it is reserved, and keeps its daemon until then
	rankEnded                // so does a pod that has ended, or it is being deleted
	rankWithout
	rankLeaving // the pod on its way out tells
)

func (c *Course) rank(n *node) rank {
	switch d := &n.daemon; {
	case c.reserved[n]:
		return rankReserved
	case d.Ended && d.EndsBy.IsZero():
		return rankEnded
	case !d.Ended:
		return rankWithout
	}
	return rankLeaving
}

// replaced is what daemons were like, by node, as a status says it.
func replaced(s *v1alpha1.Replacing) map[string]Before {
	out := map[string]Before{}
	if s != nil {
		for _, n := range s.Available {
			out[n] = WasAvailable
		}
		for _, n := range s.Unavailable {
			out[n] = WasNotAvailable
		}
	}
	return out
}

// Failing counts the failures of the target by their reason.
func (c *Course) Failing() map[Reason]int {
	out := map[Reason]int{}
	for _, f := range c.state.failures {
		out[cmp.Or(f.reason, BecauseUnknown)]++
	}
	if more := c.failures() - len(c.state.failures); more > 0 {
		out[BecauseUnknown] += more
	}
	return out
}

// stepsOf is what a status says of steps.
func stepsOf(s *v1alpha1.DaemonSetRolloutStatus) *v1alpha1.DaemonSetRolloutStatus {
	return &v1alpha1.DaemonSetRolloutStatus{Step: s.Step, StepStarted: s.StepStarted, LastDeparture: s.LastDeparture, Steps: slices.Clone(s.Steps)}
}

// StepOf is the name of the step that a node belongs to; "" for one that is not in the fleet.
func (c *Course) StepOf(name string) string {
	if n := c.nodes[name]; n != nil && c.policy != nil && n.chosen.any() {
		return c.policy.StepName(n.step)
	}
	return ""
}

// Verdict is where a node stands, and why.
func (c *Course) Verdict(name string) (Verdict, string) {
	n := c.nodes[name]
	if n == nil {
		return NotSelected, "there is no such node"
	}
	if n.view.verdict == Waiting {
		return Waiting, c.waitsFor(n) + c.moves(n)
	}
	return n.view.verdict, n.view.reason
}
