package course

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/deadline"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// Course is the rollout of one DaemonSet. One owner at a time.
type Course struct {
	rules  Places
	now    time.Time
	ds     DaemonSet
	policy *rolloutpolicy.Policy
	follow Following
	why    string // why the policy is not followed
	spec   v1alpha1.DaemonSetRolloutSpec
	paused string // why spec.paused is set, if it was not somebody
	abort  bool   // spec.target is Stable, and was written about the present target
	seen   bool   // the status that it started with speaks of the spec

	started bool
	state   state
	phase   v1alpha1.Phase
	message string
	// named is what failing3 says, "" when a failure has come or gone since.
	named string

	nodes map[string]*node
	// replacing are nodes between the daemon that a change takes away and the next one; reserved
	// those of them that have it still, owed those of which the API does not hold what it was
	// like. stored is what the API holds, by node.
	replacing, reserved, owed map[*node]bool
	stored                    map[string]Before
	fleet                     *rolloutpolicy.Fleet
	steps                     map[rolloutpolicy.Step]*step
	places                    map[place]*domain
	groups                    map[string]*group
	totals                    totals
	counts                    map[Verdict]int32
	stale                     []*node // to be judged anew: their domain has changed
	moved                     []string
	timers                    deadline.Timers[*node]
	recent                    recent
	wake                      time.Time // when the phase may change by time alone
}

// state is what the rollout's status stores.
type state struct {
	stable, target string
	// open is the furthest step that has begun, since when.
	open      rolloutpolicy.Step
	openSince time.Time
	// left is when the daemon was last taken away from a node of that step.
	left time.Time
	// unread is where the steps were when the policy was read last, until it is again.
	unread *v1alpha1.DaemonSetRolloutStatus
	memory
	failures map[string]failure // nodes on which the target fails, and why
	// since is when the target was last tried again; zero if it was not.
	since time.Time
	// most is how many failures were known when they were more than names are kept
	// of; 0 before that. It only grows.
	most int
}

// failure is why the target fails on a node; both "" if that was seen before a restart.
type failure struct {
	reason Reason
	why    string
}

// node is one node of the fleet.
type node struct {
	name   string
	fact   Node
	daemon Daemon
	step   rolloutpolicy.Step
	chosen chosen
	// begun is the revision that the node had when its change was begun by Take, until
	// that shows.
	begun *string
	// before is what its daemon was like when its change began.
	before Before
	// overlooked is how often its pod had restarted when the target was tried again.
	overlooked int32
	// up is since when its pod was seen available without a break, whatever its node says
	// of it since.
	up time.Time

	view  view
	group *group
	timer deadline.Timer[*node]
	// lately is whether it fell out of order a short while ago, until quiet ends.
	lately lately
	quiet  deadline.Timer[*node]
}

// New returns a course that has been told nothing.
func New(places Places) *Course {
	c := &Course{
		rules: places,
		nodes: map[string]*node{}, replacing: map[*node]bool{}, reserved: map[*node]bool{}, owed: map[*node]bool{}, groups: map[string]*group{}, places: map[place]*domain{},
		steps: map[rolloutpolicy.Step]*step{}, counts: map[Verdict]int32{},
	}
	c.state.failures = map[string]failure{}
	c.recent.changed, c.recent.unblamed = map[*node]bool{}, map[*node]bool{}
	return c
}

// SetDaemonSet tells of the DaemonSet.
func (c *Course) SetDaemonSet(ds DaemonSet) {
	if c.ds == ds {
		return
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
	c.why = why
	if p != nil && p != c.policy {
		begun := c.begunSteps()
		for _, n := range c.nodes {
			c.ungroup(n)
		}
		c.policy = p
		c.fleet = rolloutpolicy.NewFleet(p)
		for _, n := range c.nodes {
			if n.chosen.any() {
				c.fleet.Set(n.name, n.fact.Labels)
			}
		}
		for _, n := range c.nodes {
			n.step, _ = c.fleet.Step(n.name)
			c.regroup(n)
		}
		if c.started {
			c.reopen(begun)
		}
		c.refreshAll()
	}
	c.settle()
}

// SetSpec tells what people wrote into the rollout.
func (c *Course) SetSpec(spec v1alpha1.DaemonSetRolloutSpec) {
	c.abort = c.started && spec.Target == v1alpha1.TargetStable && c.spec.Target != v1alpha1.TargetStable
	c.spec = spec
	c.settle()
}

// PausedBecause tells why the rollout is paused if nobody asked for it; "" if somebody did.
func (c *Course) PausedBecause(why string) {
	if c.paused != why {
		c.paused = why
		c.settle()
	}
}

// SpecSeen tells, before Start, that the status speaks of the spec: an abort in it that
// the status does not show was about an earlier template.
func (c *Course) SpecSeen() { c.seen = true }

// Start begins to decide. All facts have been told by then; status is what the
// rollout's object says, empty for one that is new.
func (c *Course) Start(status *v1alpha1.DaemonSetRolloutStatus) {
	c.restore(status)
	c.started = true
	if c.state.target == "" {
		c.state.stable = c.mostRun()
	}
	known := c.state.target == c.ds.Newest && status.Step != ""
	c.abort = c.spec.Target == v1alpha1.TargetStable && c.state.target == c.ds.Newest && !c.seen
	c.retarget()
	c.chooseAll()
	if known {
		c.state.unread = stepsOf(status)
	}
	if known && c.policy != nil {
		c.reopen(c.begunSteps())
	}
	c.stored = replaced(status.Replacing)
	c.recallBefore(c.stored)
	c.recent.baseline(c)
	c.overlook()
	c.refreshAll()
	c.settle()
}

// restore takes over what a status says of revisions, failures and the step.
func (c *Course) restore(status *v1alpha1.DaemonSetRolloutStatus) {
	c.state.stable, c.state.target = status.StableRevision, status.TargetRevision
	c.state.memory = memory{slices.Clone(status.FailedRevisions), slices.Clone(status.EarlierFailures), status.ForgottenFailures}
	if f := status.Failures; f != nil && f.Revision == status.TargetRevision {
		for _, n := range f.Nodes {
			c.state.failures[n] = failure{}
		}
		if f.More > 0 {
			c.state.most = len(f.Nodes) + int(f.More)
		}
		if f.Since != nil {
			c.state.since = f.Since.Time
		}
	}
	if status.StepStarted != nil {
		c.state.openSince = status.StepStarted.Time
	}
	if status.LastDeparture != nil {
		c.state.left = status.LastDeparture.Time
	}
}

// recallBefore finds out what daemons were like before their change: their next ones say
// it, and of nodes that have none what is stored, or the pod that was there last: one of the
// target what it replaced, another what it was like.
func (c *Course) recallBefore(stored map[string]Before) {
	if !c.changing() {
		return
	}
	for _, n := range c.nodes {
		switch n.daemon.Revision {
		case c.state.target:
			n.before = n.daemon.Before
		case "":
			was := n.daemon.Was
			if n.daemon.Ending == c.state.target {
				was = n.daemon.Before
			}
			n.before = cmp.Or(stored[n.name], was)
		default:
			n.before = ""
		}
	}
}

// RulesChanged tells that places say otherwise about revisions that were known before.
func (c *Course) RulesChanged() {
	c.refreshAll()
	c.settle()
}

// mostRun is the revision that most nodes have; "" if there is none.
func (c *Course) mostRun() string {
	counts := map[string]int{}
	for _, n := range c.nodes {
		if n.daemon.Revision != "" {
			counts[n.daemon.Revision]++
		}
	}
	best := ""
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		if best == "" || counts[r] > counts[best] {
			best = r
		}
	}
	return best
}

// begunSteps names the step that is under way and those that began before it.
func (c *Course) begunSteps() []string {
	if u := c.state.unread; u != nil {
		names := []string{u.Step}
		for i := range u.Steps {
			if u.Steps[i].Name == u.Step {
				return names
			}
			names = append(names, u.Steps[i].Name)
		}
		return names[:1]
	}
	if c.policy == nil {
		return nil
	}
	names := []string{c.policy.StepName(c.state.open)}
	for _, s := range c.fleet.Steps() {
		if s.Compare(c.state.open) < 0 {
			names = append(names, c.policy.StepName(s))
		}
	}
	return names
}

// reopen finds how far steps have begun that began under another policy, or before a
// restart; the first of the names is the one under way. A step that comes behind one
// that never began has to wait for it.
func (c *Course) reopen(begun []string) {
	open := rolloutpolicy.Step{}
	for _, s := range c.fleet.Steps() {
		if !slices.Contains(begun, c.policy.StepName(s)) {
			break
		}
		open = s
	}
	if c.state.open = open; len(begun) == 0 || c.policy.StepName(open) != begun[0] {
		c.state.openSince, c.state.left = c.now, time.Time{}
	}
	c.state.unread = nil
}

// retarget follows the DaemonSet's newest revision: with another one the steps, and
// the evidence, begin anew.
func (c *Course) retarget() {
	if !c.started || c.state.target == c.ds.Newest {
		return
	}
	if c.isNew() && c.mostHave(c.state.target) {
		c.state.stable = c.state.target
	}
	c.state.target = c.ds.Newest
	c.revoke()
	c.beginAnew()
	c.refuse()
	c.abort = false
	c.recent.baseline(c)
}

// beginAnew goes back to the first step, without evidence.
func (c *Course) beginAnew() {
	c.state.open, c.state.openSince, c.state.left, c.state.unread = rolloutpolicy.Step{}, c.now, time.Time{}, nil
	c.forgetFailures()
}

// mostHave tells whether the revision has not failed, and works on more than half of
// the nodes: a node that never had it must not keep a DaemonSet new for ever, whose
// changes ask for no steps.
func (c *Course) mostHave(revision string) bool {
	selected, have := 0, 0
	for _, n := range c.nodes {
		selected += one(n.chosen.any())
		have += one(n.chosen.any() && n.daemon.Revision == revision && !n.daemon.Since.IsZero())
	}
	return revision != "" && !c.hasFailed(revision) && 2*have > selected
}

// SetNode tells of a node.
func (c *Course) SetNode(name string, fact Node) {
	_, known := c.nodes[name]
	n := c.node(name)
	labelsChanged := !maps.Equal(n.fact.Labels, fact.Labels)
	if known && !labelsChanged && n.fact.Fault == fact.Fault && n.fact.Silent == fact.Silent && n.fact.Since.Equal(fact.Since) &&
		n.chosen == c.choose(n) {
		return
	}
	n.fact = fact
	if labelsChanged {
		c.regroup(n)
	}
	if was := n.chosen; c.chooses(n).any() != was.any() || labelsChanged {
		c.sort(n)
	}
	c.refresh(n)
	c.settle()
}

// SetDaemon tells what became of the DaemonSet on a node.
func (c *Course) SetDaemon(name string, d Daemon) {
	n := c.node(name)
	was := n.daemon
	if n.daemon = d; was == d && n.chosen == c.choose(n) {
		return
	}
	c.refusedBeside(n)
	c.compare(n, &was)
	if was := n.chosen; c.chooses(n).any() != was.any() {
		c.sort(n)
	}
	c.leftAt(n, &was)
	c.refresh(n)
	c.settle()
}

// compare keeps what follows from how the daemon was until now.
func (c *Course) compare(n *node, was *Daemon) {
	d := &n.daemon
	c.toldBefore(n, was)
	if d.Since.IsZero() || was.Since.IsZero() || !d.Made.Equal(was.Made) {
		n.up = d.Since
	}
	if n.overlooked > d.Restarts || !d.Made.Equal(was.Made) {
		n.overlooked = 0
	}
	if n.begun != nil && (d.Revision != *n.begun || d.Two || d.Held) {
		c.end(n)
	}
}

// DeleteNode forgets a node.
func (c *Course) DeleteNode(name string) {
	n := c.nodes[name]
	if n == nil {
		return
	}
	n.daemon, n.chosen = Daemon{}, chosen{}
	c.sort(n)
	c.refresh(n)
	c.ungroup(n)
	c.timers.Stop(&n.timer)
	c.recent.drop(n)
	delete(c.replacing, n)
	delete(c.owed, n)
	delete(c.reserved, n)
	delete(c.nodes, name) // its failure stays: whoever repairs machines takes away the worst
	c.counts[n.view.verdict]--
	c.settle()
}

func (c *Course) node(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{name: name}
		n.timer.Owner, n.quiet.Owner = n, n
		n.view.verdict = NotSelected
		c.counts[NotSelected]++
		c.nodes[name] = n
		c.regroup(n)
	}
	return n
}

// sort brings a node's step in line with its labels, and those of nodes that make
// room for it.
func (c *Course) sort(n *node) {
	if c.fleet == nil {
		return
	}
	var moved []string
	if n.chosen.any() {
		moved = c.fleet.Set(n.name, n.fact.Labels)
	} else {
		moved = c.fleet.Delete(n.name)
	}
	for _, name := range moved {
		if o := c.nodes[name]; o != nil {
			c.restep(o)
		}
	}
}

// restep moves a node's contribution to the step that it belongs to now.
func (c *Course) restep(n *node) {
	c.account(n, view{verdict: n.view.verdict})
	n.step, _ = c.fleet.Step(n.name)
	c.refresh(n)
}

func (c *Course) refreshAll() {
	c.chooseAll()
	for _, n := range c.nodes {
		c.refresh(n)
	}
}

// Tick moves time forward and does what was due.
func (c *Course) Tick(now time.Time) {
	if now.After(c.now) {
		c.now = now
	}
	for t := c.timers.Pop(c.now); t != nil; t = c.timers.Pop(c.now) {
		c.refresh(t.Owner)
	}
	if l := &c.recent.lost; !l.again.After(c.now) {
		l.again = time.Time{}
	}
	c.recent.forget(c)
	c.settle()
}

// NextTick is when Tick has something to do next, if ever.
func (c *Course) NextTick() (time.Time, bool) {
	at, _ := c.timers.Next()
	quiet, _ := c.recent.ends.Next()
	at = deadline.Sooner(deadline.Sooner(at, quiet), deadline.Sooner(c.wake, c.recent.lost.again))
	return at, !at.IsZero()
}
