package course

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// settle does what follows from the facts: trips limits, begins steps, completes.
func (c *Course) settle() {
	if !c.started {
		return
	}
	for {
		for c.queue.Doubtful() {
			for _, m := range c.queue.Stale() {
				if n := c.nodes[m.Name]; n != nil && &n.Member == m {
					c.refresh(n)
				}
			}
		}
		if !c.suspect() && !c.advance() && !c.lookAhead() {
			break
		}
	}
	c.stood = false
}

// lookAhead looks whether nodes of the step under way wait for others to fetch images, and lets those of the next step
// fetch once all nodes of this one are changed. It reports whether anything follows from that.
func (c *Course) lookAhead() bool {
	if !c.ds.Fetches || c.policy == nil || !c.policy.Fetches() || !c.changing || c.isNew || c.back {
		return false
	}
	awaited, queued, changed, stands := 0, 0, true, !c.followed()
	if s := c.queue.Steps[c.state.open]; s != nil {
		awaited, queued, changed = s.Sums[standing.Fetches], s.Sums[standing.Queued], s.Changed()
	}
	rests, patience := stands || queued > 0, c.policy.Waves[c.state.open.Wave].FetchDeadline
	c.gate.Look(c.state.open, c.state.openSince, c.now, awaited, rests, patience, c.ds.Foretells)
	if !changed || stands || c.gate.IsAhead() {
		return false
	}
	next, _ := c.following()
	c.gate.LookAhead(next)
	return c.refreshSteps(next)
}

// refreshSteps judges the nodes of steps again, and reports whether there are any.
func (c *Course) refreshSteps(of ...rolloutpolicy.Step) (any bool) {
	for _, n := range c.nodes {
		if slices.Contains(of, n.step) {
			c.refresh(n)
			any = true
		}
	}
	return any
}

// stands finds out what the rollout does, once for all who ask between two events.
func (c *Course) stands() {
	if c.started && !c.stood {
		c.phase, c.message, c.wake = c.stand()
		c.wake = deadline.Sooner(c.wake, c.quietUntil()) // a change ends also while it is paused
		if c.stepSoaks() {
			c.wake = deadline.Sooner(c.wake, c.state.soak.More(c.now, c.policy.Waves[c.state.open.Wave].Soak))
		}
		c.stood = true
	}
}

// advance moves the rollout by one move; false if there is none.
func (c *Course) advance() bool {
	c.noteReturn()
	if !c.changing {
		return false
	}
	if c.failed != nil {
		return c.retry() || c.giveUp()
	}
	switch {
	case c.aborts(): // also while no policy can be read: it must not be forgotten
		c.fail("somebody aborted it", rollback)
	case c.policy == nil:
		return false
	case c.tripped():
		c.fail(c.state.failures.Evidence(c.queue.Totals[standing.Given]), c.action())
	case c.complete():
		c.state.stable = c.state.target
		c.takeAim()
		c.forgetFailures()
	default:
		return c.nextStep()
	}
	c.refreshAll()
	return true
}

// tripped reports whether more nodes have failed than may.
func (c *Course) tripped() bool {
	f, failed := &c.policy.Failure, c.state.failures.Count()
	return failed >= f.Min && f.Max.Exceeded(failed, max(c.queue.Totals[standing.Given], failed))
}

const halt, rollback = v1alpha1.FailureHalt, v1alpha1.FailureRollback

func rollsBack(f *v1alpha1.FailedRevision) bool { return f.Action == rollback }

func (c *Course) action() v1alpha1.FailureAction {
	if c.policy.Failure.Rollback {
		return rollback
	}
	return halt
}

// complete reports whether every node that can has the target, and has soaked.
func (c *Course) complete() bool {
	t := &c.queue.Totals
	if c.follow != Followed || t.Over() != t[standing.Selected] || t[standing.Done] == 0 || !c.quietUntil().IsZero() {
		return false
	}
	// The nodes of steps to come may all be out of order. When they are back, it must
	// not be too late for steps, windows and approvals.
	_, more := c.following()
	return c.isNew || !more && !c.skips()
}

// isNowhere reports whether no node is selected. Such a change is complete, and leaves the stable revision as it was
// until the target has run somewhere: a pool that comes back from zero goes through the steps.
func (c *Course) isNowhere() bool {
	return c.changing && c.failed == nil && c.follow == Followed && c.policy != nil &&
		c.queue.Totals[standing.Selected] == 0 && !c.skips()
}

// skips reports whether nobody has approved the present step, and the nodes of those behind it are away: who comes
// while a change is complete gets the target.
func (c *Course) skips() bool {
	open := c.state.open
	return c.policy.Waves[open.Wave].Manual && c.knowsBeyond() && !c.approved(open)
}

// knowsBeyond reports whether a step behind the present one is known to have had nodes.
func (c *Course) knowsBeyond() bool {
	at, is := c.policy.StepNamed(c.state.beyond)
	return is && at.Compare(c.state.open) > 0
}

// nextStep begins the step after the present one, if that is over.
func (c *Course) nextStep() bool {
	if c.isNew || c.follow != Followed || c.spec.Paused || c.tooFine() != "" || c.Misplaced() > 0 {
		return false
	}
	over, _ := c.over()
	if !over {
		c.lookBeyond()
		return false
	}
	next, ok := c.following()
	if open, _ := c.open(); !ok || !open || c.faulty() {
		return false
	}
	ahead := c.gate.Next()
	c.opens(next)
	c.gate = gate{}
	c.refreshSteps(next, ahead)
	return true
}

// lookBeyond remembers a step behind one that asks for approval, once: looking sorts all steps.
func (c *Course) lookBeyond() {
	if !c.policy.Waves[c.state.open.Wave].Manual || c.knowsBeyond() {
		return
	}
	next, more := c.following()
	if more {
		c.state.beyond = c.policy.StepName(next)
	}
}

// following is the step with nodes that comes after the present one.
func (c *Course) following() (rolloutpolicy.Step, bool) {
	for _, s := range c.fleet.Steps() {
		if s.Compare(c.state.open) > 0 {
			return s, true
		}
	}
	return rolloutpolicy.Step{}, false
}

// over reports whether the present step holds up the next one no longer; if it does,
// and nothing but somebody's word will change that, ask says why.
func (c *Course) over() (over bool, ask string) {
	open := c.state.open
	wave := &c.policy.Waves[open.Wave]
	name := c.policy.StepName(open)
	s := c.queue.Steps[open]
	asks := wave.Each == "" && wave.Name != rolloutpolicy.RestName && !c.approved(open)
	switch {
	case s == nil || s.Sums[standing.Selected] == 0:
		return c.overWithoutNodes(asks)
	case s.Over() < s.Sums[standing.Selected], !c.quietUntil().IsZero():
		return false, ""
	case s.Sums[standing.Done] == 0 && asks:
		return false, c.worksNowhere(name, s)
	case s.Sums[standing.Removed] > 0 && asks && !c.works():
		return false, "step " + name + " only takes the daemon away, and no node shows yet that the revision works"
	case wave.Manual && !c.approved(open):
		return false, "step " + name + " is complete" + c.exceptFor(s)
	}
	return true, ""
}

// overWithoutNodes is over for a step that has none: a canary that nobody is asks, unless a ramp is about to begin.
func (c *Course) overWithoutNodes(asks bool) (over bool, ask string) {
	open := c.state.open
	next, more := c.following()
	ramps := more && next.Wave == open.Wave && next.Part == 1
	switch wave := &c.policy.Waves[open.Wave]; {
	case wave.Manual && !c.approved(open) && c.hadNodes():
		return false, "step " + c.policy.StepName(open) + " has no node any more"
	case open.Wave > 0, !asks, ramps:
		return true, ""
	}
	return false, "wave " + c.policy.StepName(open) + " takes no node"
}

// hadNodes reports whether the present step had nodes when it began. A change begins before the first value of a wave
// that goes by a label, which looks like the step of an empty value.
func (c *Course) hadNodes() bool {
	return c.state.open != (rolloutpolicy.Step{}) || c.policy.Waves[0].Each != "" && c.knowsBeyond()
}

// worksNowhere says why a step has no node that is done.
func (c *Course) worksNowhere(name string, s *queue.Step) string {
	if s.Sums[standing.Failure] > 0 {
		return "step " + name + " has no node on which the revision works; it fails on " + c.state.failures.Words()
	}
	text := "no node of step " + name + " can take the change"
	if m, any := s.Excused.Min(); any {
		n := c.known(m)
		text += words.Such(s.Excused.Len(), n.Name, cmp.Or(n.view.reason, n.Group.Limits(c.policy.Domains)))
	}
	return text + "; it shows nothing of the revision, and goes on by itself when one of them can"
}

// works reports whether the target runs on some node of a step that has begun, and has soaked.
func (c *Course) works() bool {
	for at, s := range c.queue.Steps {
		if c.begun(at) && s.Sums[standing.Done] > s.Sums[standing.Removed] {
			return true
		}
	}
	return false
}

// exceptFor says on which nodes of a step the revision fails; "" if on none.
func (c *Course) exceptFor(s *queue.Step) string {
	if s.Sums[standing.Failure] == 0 {
		return ""
	}
	return ", but the revision fails on " + c.state.failures.Words()
}

// approved reports whether somebody approved the step, or a later one, of this change.
func (c *Course) approved(s rolloutpolicy.Step) bool {
	a, _ := c.state.consent.To(c.state.target, c.ds.Digest)
	if a == nil || a.Step == v1alpha1.AllSteps {
		return a != nil
	}
	upTo, ok := c.policy.StepNamed(a.Step)
	return ok && s.Compare(upTo) <= 0
}

// open reports whether now is inside a window, and when that changes next; the zero time means never.
func (c *Course) open() (bool, time.Time) { return c.window.Look(c.policy, c.now) }

// faulty reports whether so many nodes are out of order that nothing new begins.
func (c *Course) faulty() bool {
	return c.queue.Totals[standing.Sick] > c.policy.MaxNodeFaults.Of(c.queue.Totals[standing.Selected])
}

func (c *Course) tooFaulty() string {
	return fmt.Sprintf("nothing new begins: %d of %s are out of order, more than %s", c.queue.Totals[standing.Sick],
		words.Nodes(c.queue.Totals[standing.Selected]), c.policy.MaxNodeFaults)
}

// tooFine says why the policy makes too many steps of this fleet; "" if it does not, or where steps do not count.
func (c *Course) tooFine() string {
	if c.isNew {
		return ""
	}
	return c.fleet.TooFine()
}

// stand says what the rollout does now, why, and when that may change by itself.
func (c *Course) stand() (v1alpha1.Phase, string, time.Time) {
	t, none, failed := &c.queue.Totals, time.Time{}, c.failed
	switch {
	case !c.changing && t[standing.Pending] == 0, c.isNowhere():
		return v1alpha1.PhaseComplete, t.Completed(c.state.target), none
	case c.changing && failed != nil && !rollsBack(failed):
		return v1alpha1.PhaseHalted, "revision " + failed.Revision + " " + failed.Why, none
	case c.follow != Followed && c.changing && failed != nil:
		return v1alpha1.PhasePaused, cmp.Or(c.why, "no policy can be followed") + "; revision " + failed.Revision + " " + failed.Why + c.notBack(), none
	case c.follow != Followed:
		return v1alpha1.PhasePaused, cmp.Or(c.why, "no policy can be followed"), none
	case c.changing && failed != nil && c.wayBackIsLost():
		return v1alpha1.PhasePaused, fmt.Sprintf("nothing goes back to revision %s: its ControllerRevision is gone or cannot be read; revision %s %s",
			c.state.stable, failed.Revision, failed.Why), none
	case c.changing && failed != nil:
		return v1alpha1.PhaseRolledBack, "revision " + failed.Revision + " " + failed.Why + c.notBack(), none
	case c.spec.Paused:
		return v1alpha1.PhasePaused, cmp.Or(c.paused, "somebody paused it (spec.paused)"), none
	case !c.changing:
		return c.standBehind()
	}
	return c.standInStep()
}

// notBack says which nodes have not gone back, and why they do not.
func (c *Course) notBack() string {
	switch n := c.queue.Totals[standing.Pending] + c.queue.Totals[standing.Held]; {
	case n == 0:
		return ""
	case c.follow != Followed:
		return fmt.Sprintf("; %s not gone back, and will when a policy can be followed", words.Have(n))
	case c.spec.Paused:
		return fmt.Sprintf("; %s not gone back, and will not while it is paused (spec.paused)", words.Have(n))
	default:
		return fmt.Sprintf("; %s not gone back yet", words.Have(n)) + c.blockedBy()
	}
}

// wayBackIsLost reports whether nodes are to return to a revision that cannot be read.
func (c *Course) wayBackIsLost() bool {
	return c.back && c.state.stable != "" && c.ds.Of(c.state.stable) == nil &&
		c.queue.Totals[standing.Done] < c.queue.Totals[standing.Selected]
}

// blockedBy says which nodes use up the limit, and what they wait for; "" if there is room.
func (c *Course) blockedBy() string {
	m, any := c.queue.Blocked.Min()
	s := c.queue.Steps[c.state.open]
	if !any || c.queue.Totals[standing.Ours] < c.most() && (s == nil || c.room(c.state.open, s)) {
		return ""
	}
	many := c.queue.Blocked.Len()
	return "; " + words.UsedUp + words.Nodes(many) + words.Such(many, m.Name, c.known(m).view.reason)
}

// trails reports whether the change is complete. Nodes that were away then still get the target, each inside a window
// and within the limit of its step.
func (c *Course) trails() bool { return !c.changing && !c.undone }

// standBehind is stand for nodes that are to have the stable revision, and have another.
func (c *Course) standBehind() (v1alpha1.Phase, string, time.Time) {
	text := fmt.Sprintf("%s another revision than %s", words.Have(c.queue.Totals[standing.Pending]), c.state.stable)
	open, changes := c.open()
	if c.trails() && !open {
		return v1alpha1.PhaseOutsideWindow, text + "; " + words.OpensAt(changes), changes
	}
	return v1alpha1.PhaseProgressing, text + c.blockedBy(), changes
}

func (c *Course) standInStep() (v1alpha1.Phase, string, time.Time) {
	name := c.policy.StepName(c.state.open)
	if why := c.tooFine(); why != "" {
		return v1alpha1.PhasePaused, "nothing new begins: " + why, time.Time{}
	}
	if wrong := c.Misplaced(); wrong > 0 {
		first := words.Nodes(wrong) + " got the target before their step, and go back first"
		return v1alpha1.PhaseProgressing, first, time.Time{}
	}
	if !c.isNew {
		if _, ask := c.over(); ask != "" {
			_, void := c.state.consent.To(c.state.target, c.ds.Digest)
			ask += "; the next step begins when it is approved" + void
			if c.faulty() {
				ask += "; but " + c.tooFaulty()
			}
			return v1alpha1.PhaseWaitingForApproval, ask, time.Time{}
		}
	}
	if soaks := c.soaks(name); soaks != "" {
		return v1alpha1.PhaseSoaking, soaks, time.Time{}
	}
	open, changes := c.open()
	switch {
	case !open:
		return v1alpha1.PhaseOutsideWindow, words.OpensAt(changes), changes
	case c.faulty():
		return v1alpha1.PhasePaused, c.tooFaulty(), changes
	case c.isNew:
		return v1alpha1.PhaseProgressing, fmt.Sprintf("%d of %s have the first revision", c.queue.Totals[standing.Done],
			words.Nodes(c.queue.Totals[standing.Selected])), changes
	}
	return v1alpha1.PhaseProgressing, "step " + name + c.heldUp(), changes
}

// soaks says what the step still waits for when all its nodes are changed; "" if it waits for something else.
func (c *Course) soaks(name string) string {
	s, t, ends := c.queue.Steps[c.state.open], &c.queue.Totals, c.quietUntil()
	switch {
	case !c.isNew && s != nil && s.Sums[standing.Soaks] > 0 && s.Changed():
		return fmt.Sprintf("step %s: %s", name, words.Soaking(s.Sums[standing.Soaks]))
	case !ends.IsZero() && s.Over() == s.Sums[standing.Selected]:
		return fmt.Sprintf("step %s soaks until %s; the daemon was taken away from %s", name, words.Clock(ends),
			words.Nodes(s.Sums[standing.Removed]))
	case c.isNew && t[standing.Soaks] > 0 && t.Over()+t[standing.Soaks] == t[standing.Selected]:
		return words.Soaking(t[standing.Soaks])
	}
	return ""
}

// heldUp says what failed nodes hold up, if they are what the step waits for.
func (c *Course) heldUp() string {
	s, t, failing := c.queue.Steps[c.state.open], &c.queue.Totals, int(c.counts[standing.FailedRevision])
	limited := t
	if s != nil && c.policy != nil && c.policy.Waves[c.state.open.Wave].MaxUnavailable != nil {
		limited = &s.Sums
	}
	switch {
	case s == nil || c.policy == nil || failing == 0:
		return ""
	case t.Over()+failing == t[standing.Selected]:
		return ": everything that can be done is done; within the limit, the revision fails on " + c.state.failures.Words()
	case limited[standing.Ours] == limited[standing.Failure] && !c.room(c.state.open, s):
		return ": no more nodes may be unavailable while the revision fails on " + c.state.failures.Words()
	}
	return ""
}

// aborts reports whether people give the target up: for as long as the spec says so.
func (c *Course) aborts() bool {
	a := c.spec.Abort
	return a != nil && a.Revision == c.state.target && a.Digest == c.ds.Digest
}
