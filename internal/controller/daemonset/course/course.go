package course

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/approval"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/begun"
	"github.com/everynode/everynode/internal/controller/daemonset/course/failedrevision"
	"github.com/everynode/everynode/internal/controller/daemonset/course/failures"
	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/controller/daemonset/course/soaking"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Course is the rollout of one DaemonSet. One owner at a time.
type Course struct {
	now    time.Time
	api    time.Time // the newest that the API's clock has given for a node or its daemon: it says at least that now
	ds     DaemonSet
	policy *rolloutpolicy.Policy
	follow Following
	why    string // why the policy is not followed
	spec   v1alpha1.DaemonSetRolloutSpec
	paused string // why spec.paused is set, if it was not somebody

	started bool
	began   time.Time // when it was started
	state   state
	aim
	// undone: the stable template was set again in the middle of a change, whose nodes go back.
	undone bool
	// phase, message and wake are what stands says, if that stood since the last event. At wake the phase
	// may change by time alone.
	stood   bool
	phase   v1alpha1.Phase
	message string
	wake    time.Time
	nodes   map[string]*node
	// replacing are nodes between the daemon that a change took away and the next one.
	replacing standing.Replacing
	fleet     *rolloutpolicy.Fleet
	queue     queue.Queue
	counts    map[standing.Verdict]int32
	moved     []string
	timers    deadline.Timers[*node]
	recent    recent
	window    rolloutpolicy.Opening
	gate      gate
	// owing are nodes that may get the revision for which a change took their daemon, before their turn in this one.
	owing []*node
	// absentees are nodes that were deleted while they were without a daemon by our doing.
	absentees standing.Absentees
}

type gate = fetching.Gate[rolloutpolicy.Step]

// state is what the rollout's status stores.
type state struct {
	stable, target string
	// steps: there is no stable revision, since what most nodes run has failed, and works on them. What comes next
	// asks for steps all the same. standIn is then the revision that most nodes run, if one has not failed: a node
	// that has no daemon gets it until its own step begins.
	steps   bool
	standIn string
	// open is the furthest step that has begun, since when.
	open      rolloutpolicy.Step
	openSince time.Time
	// beyond is a step that had nodes when it was behind the open one.
	beyond string
	// returns is since when nodes go to the stable template; zero while none does.
	returns time.Time
	// left is when the daemon was last taken away from a node of that step.
	left time.Time
	soak soaking.Soak
	// unread is where the steps were when the policy was read last, until it is again.
	unread *v1alpha1.DaemonSetRolloutStatus
	failedrevision.Memory
	failures failures.Failures // of the target
	consent  approval.Consent
	// since is when the target was last tried again, or became it while nodes still had it from before;
	// zero if neither. What is older is no evidence. after is the latest time of the API that was known then.
	since, after time.Time
}

// aim is what follows from the revisions and what is known to have failed.
type aim struct {
	// changing: there is another revision to go to than the stable one. isNew: there is no stable one, and steps are
	// not asked for. back: nodes go to the stable revision, which asks for no step, window or approval.
	changing, isNew, back bool
	// failed is what is known of it if the target has failed; targetFailed also where that is only its name.
	failed       *v1alpha1.FailedRevision
	targetFailed bool
}

// takeAim is called after each change of what it reads.
func (c *Course) takeAim() {
	target, f := c.state.target, c.state.Failure(c.state.target)
	changing := target != c.state.stable
	c.aim = aim{
		changing: changing, isNew: c.state.stable == "" && !c.state.steps, back: !changing || f != nil && rollsBack(f),
		failed: f, targetFailed: c.state.HasFailed(target),
	}
}

// New returns a course that has been told nothing.
func New() *Course {
	c := &Course{
		nodes: map[string]*node{}, queue: queue.New(), counts: map[standing.Verdict]int32{},
	}
	c.takeAim()
	c.recent.changed, c.recent.unblamed = map[*node]bool{}, map[*node]bool{}
	return c
}

// SetDaemonSet tells of the DaemonSet.
func (c *Course) SetDaemonSet(ds DaemonSet) {
	if c.ds == ds {
		return
	}
	if c.ds.Surge != ds.Surge || c.ds.MaxUnavailable != ds.MaxUnavailable {
		c.revoke() // what was let begin by other limits
	}
	c.ds = ds
	c.retarget()
	c.refreshAll()
	c.settle()
}

// SetPolicy tells which policy to follow. When there is none to follow any more, the
// one that was known last says what the steps are, and why says what happened.
func (c *Course) SetPolicy(p *rolloutpolicy.Policy, f Following, why string) {
	if c.follow != f {
		c.follow = f
		defer func() { c.refreshAll(); c.settle() }()
	}
	c.why = words.Cut(why)
	if p != nil && p != c.policy {
		before := c.begunSteps()
		for _, n := range c.nodes {
			c.ungroup(n)
		}
		c.policy = p
		c.fleet = rolloutpolicy.NewFleet(p)
		for _, n := range c.nodes {
			if n.chosen.Any() {
				c.fleet.Set(n.Name, n.fact.labels())
			}
		}
		for _, n := range c.nodes {
			n.change.late = false
			n.step, _ = c.fleet.Step(n.Name)
			c.regroup(n)
		}
		if c.started {
			c.reopen(before)
		}
		c.refreshAll()
	}
	c.settle()
}

// SetSpec tells what people wrote into the rollout.
func (c *Course) SetSpec(spec v1alpha1.DaemonSetRolloutSpec) {
	turns := c.spec.Paused != spec.Paused
	c.spec = spec
	c.hear()
	if turns { // what waits for its turn waits on, and nobody is asked for images meanwhile
		c.revoke()
		c.refreshAll()
	}
	c.settle()
}

// PausedBecause tells why the rollout is paused if nobody asked for it; "" if somebody did.
func (c *Course) PausedBecause(why string) {
	if c.paused != why {
		c.paused = why
		c.settle()
	}
}

// Start begins to decide. All facts have been told by then; status is what the
// rollout's object says, empty for one that is new.
func (c *Course) Start(status *v1alpha1.DaemonSetRolloutStatus) {
	c.restore(status)
	c.started, c.began = true, c.now
	c.age()
	isAnother := c.state.target == "" // than the one that the status speaks of, or there is none
	if isAnother {
		c.state.stable = c.mostRun()
	}
	c.takeAim()
	c.hear()
	c.findStandIn()
	known := c.state.target == c.ds.Newest && status.Step != ""
	stored := standing.Replaced(status.Replacing)
	if c.back || !c.state.returns.IsZero() {
		c.recallReturn(stored)
	}
	c.retarget()
	if isAnother && c.failed != nil {
		c.retell(halt, "") // nobody knows for sure where to go back to
	}
	c.chooseAll()
	if known {
		c.state.unread = begun.Of(status)
	}
	if known && c.policy != nil {
		c.reopen(c.begunSteps())
	}
	c.recallBefore(stored)
	c.recallAbsentees(stored)
	c.recallEarlier()
	c.soakUnseen()
	c.overlook()
	c.refreshAll()
	c.recent.baseline(c, c.recent.others)
	c.settle()
}

// restore takes over what a status says of revisions, failures and the step. Who wrote it may have had a clock that
// is ahead: nothing waits for that.
func (c *Course) restore(status *v1alpha1.DaemonSetRolloutStatus) {
	c.state.stable, c.state.target = status.StableRevision, status.TargetRevision
	named := status.Step != "" || status.TargetRevision != "" && c.mostWork(status.TargetRevision) // no policy, no step
	c.state.steps = !c.ds.Beside && status.StableRevision == "" && named
	c.state.Memory, c.state.consent = failedrevision.Recall(status), approval.Recall(status)
	if f := status.Failures; f != nil && f.Revision == status.TargetRevision {
		c.state.failures.Recall(f)
		c.recent.graves.Recall(f, c.now, c.now.Add(suspicion), c.state.failures.Has)
		if f.Since != nil {
			c.state.since = c.past(f.Since.Time)
			c.state.after = ptr.Deref(f.After, metav1.NewTime(c.state.since)).Time
		}
	}
	if r := status.Replacing; r != nil {
		c.recallSpared(r.Earlier)
		c.state.returns, c.undone = ptr.Deref(r.Since, metav1.Time{}).Time, r.Undone
	}
	if status.StepStarted != nil {
		c.state.openSince = c.past(status.StepStarted.Time)
	}
	if status.LastDeparture != nil {
		c.state.left = c.past(status.LastDeparture.Time)
	}
	at := slices.IndexFunc(status.Steps, func(s v1alpha1.StepStatus) bool { return s.Name == status.Step })
	if at >= 0 && at+1 < len(status.Steps) {
		c.state.beyond = status.Steps[at+1].Name
	}
	c.state.soak = soaking.Recall(status, c.now)
}

// past is the time, or now if that is sooner, as the API keeps it; by this process' clock from then on.
func (c *Course) past(t time.Time) time.Time {
	if t.After(c.now) {
		t = c.now.Truncate(time.Second)
	}
	return deadline.Past(t, c.now)
}

// findStandIn chooses the revision that stands in for the stable one, if there is to be one.
func (c *Course) findStandIn() {
	c.state.standIn = ""
	if c.state.stable == "" && c.state.steps {
		c.state.standIn = c.mostRun()
	}
}

// mostRun is the revision that works on most nodes, or else that most have, of those that have not failed and are not
// the target; "" if there is none.
func (c *Course) mostRun() (best string) {
	have, work := map[string]int{}, map[string]int{}
	for _, n := range c.nodes {
		if r := n.daemon.Revision; r != "" && r != c.state.target && !c.state.HasFailed(r) && content.CanBeMade(r) {
			have[r]++
			work[r] += one(n.daemon.Available)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(have)) {
		if cmp.Or(cmp.Compare(work[r], work[best]), cmp.Compare(have[r], have[best])) > 0 {
			best = r
		}
	}
	return best
}

// begunSteps names the step that is under way and those that began before it, as they are or were last known.
func (c *Course) begunSteps() begun.Steps {
	switch {
	case c.state.unread != nil:
		return begun.InStatus(c.policy, c.state.unread)
	case c.policy == nil:
		return begun.Steps{}
	}
	return begun.InFleet(c.policy, c.fleet, c.state.open)
}

// reopen goes on at the step that is under way by a policy that is another, or was read again.
func (c *Course) reopen(b begun.Steps) {
	c.state.open = b.Furthest(c.policy, c.fleet)
	if name := c.policy.StepName(c.state.open); !b.IsUnderWay(name) {
		c.opens(c.state.open)
		if slices.Contains(b.Names, name) {
			c.state.soak.From = time.Time{} // it has soaked, since a later one had begun
		}
	}
	c.state.unread, c.gate = nil, gate{}
}

// retarget follows the DaemonSet's newest revision: with another one the steps, and the evidence, begin again.
func (c *Course) retarget() {
	if !c.started || c.state.target == c.ds.Newest || c.renamed() {
		return
	}
	if c.state.stable == "" && c.mostHave(c.state.target) {
		c.state.stable = c.state.target
	}
	failed := c.failed
	c.state.steps = c.state.stable == "" && c.mostWork(c.ds.Newest)
	c.state.target = c.ds.Newest
	c.state.consent.Next()
	c.findStandIn()
	c.takeAim()
	c.undone = !c.changing
	switch {
	case c.changing:
		c.turnForward()
	case failed == nil || !rollsBack(failed):
		c.turnBack() // else nodes go on with their way back
	}
	if failed != nil && rollsBack(failed) && c.state.returns.IsZero() {
		c.state.returns = failed.Time.Time
	}
	c.beginAnew()
	if c.runsAlready() {
		c.disregardEarlier()
	}
	c.refuse()
	c.recent.baseline(c, c.recent.others+len(c.recent.changed))
}

// beginAnew goes back to the first step, without evidence.
func (c *Course) beginAnew() {
	c.revoke()
	for _, n := range c.nodes {
		n.change.late, n.change.worksOf, n.change.owed = false, "", false
	}
	c.owing = slices.DeleteFunc(slices.Collect(maps.Values(c.nodes)), func(n *node) bool { return !c.mayOwe(n) })
	c.opens(rolloutpolicy.Step{})
	c.state.unread, c.gate, c.state.beyond = nil, gate{}, ""
	c.forgetFailures()
}

// runsAlready reports whether nodes have the target from before it became the target.
func (c *Course) runsAlready() bool {
	for _, n := range c.nodes {
		if c.changing && n.daemon.Revision == c.state.target {
			return true
		}
	}
	return false
}

func (c *Course) refreshAll() {
	c.chooseAll()
	for _, n := range c.nodes {
		c.refresh(n)
	}
}

// Reach moves time forward, and reports whether it is later than before. What time alone has changed of daemons is told
// then, before Due: who stood still must take none for late that has become available meanwhile.
func (c *Course) Reach(now time.Time) (later bool) {
	later = now.After(c.now)
	if later {
		c.now = now
	}
	return later
}

// Due does what is due by now.
func (c *Course) Due() {
	for t := c.timers.Pop(c.now); t != nil; t = c.timers.Pop(c.now) {
		c.refresh(t.Owner)
	}
	c.recent.lost.Tick(c.now)
	c.recent.forget(c)
	c.settle()
}

// NextTick is when Due has something to do next, if ever.
func (c *Course) NextTick() (time.Time, bool) {
	c.stands()
	at, _ := c.timers.Next()
	quiet, _ := c.recent.ends.Next()
	at = deadline.Sooner(deadline.Sooner(at, quiet), deadline.Sooner(c.wake, c.recent.lost.Again))
	at = deadline.Sooner(at, c.recent.graves.Next())
	return at, !at.IsZero()
}
