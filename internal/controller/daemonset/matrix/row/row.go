// Package row decides what a DaemonSet controller does for one DaemonSet. A Row has a cell for each node that is to run
// the daemon or has a pod of it. Within a row an event goes one way: what is known of its cell is told to the row's
// course, if it follows a policy; then the cell is judged, once, and with it the cells whose order the course has
// changed. The package has no clock, no lock, no goroutine, no log and no client.
//
// # What a cell wants
//
// A cell is judged again after anything about it changed, and sorted by one thing: what it wants done. A row keeps the
// cells that want the same in order.
//
//	remove    delete pods now
//	sunset    delete the old pod once enough others are available
//	create    make a pod now
//	replace   delete the old pod when maxUnavailable allows
//	surge     make a second pod when maxSurge allows
//	nothing   it is as it should be, or a Because says why nothing is done
//
// The life of a cell:
//
//	no pod, node fits -create-> on its way -ready for minReadySeconds-> available
//	available, new revision -replace-> going -gone-> no pod
//	available, new revision -surge-> two pods -new one available: remove-> available
//	not available, new revision -remove, or with surge create-> ...
//	any, a pod failed or succeeded -back-off over: remove-> ...
//	any, a pod too many -remove the younger-> ...
//	any, node no longer fits: stays unless an untolerated NoExecute taint, the
//	    labels or the name forbid it -remove-> going -> no pod, and none wanted
//	any, Node object gone -remove what is unbound-> what is bound is left to the
//	    pod garbage collector
package row

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Row is one DaemonSet: its cells, the sets of those that want something, and
// the running totals. All that it learns and does goes through Step.
//
// It knows nothing of other rows nor of what they share, calls nobody back, and changes no column.
type Row struct {
	cfg   *Config // never changes
	now   time.Time
	info  fact.DaemonSet
	surge bool // whether the strategy allows a second pod on a node
	rules placement.Set
	cells map[string]*cell
	// columns are all nodes, as the matrix knows them.
	columns map[string]*Column

	totals    totals
	work      [workCount]*btree.BTreeG[*cell]
	groups    [countCount]*btree.BTreeG[*cell]
	unplaced  map[types.UID]*Pod // owned pods that name no node
	revisions map[string]int     // owned pods by revision

	// fresh is the pace of creations in cells where the last one did not fail,
	// again that of the others, so that these hold up none.
	fresh, again pace
	deletes      int // deletions in flight

	progress progress
	untold   []*cell // with news about a pod that cannot be placed

	// written are the conditions as the API has them for all we know; unsaid tells that the status differs from them.
	written        fact.Conditions
	unsaid         bool
	statusInFlight bool
	statusAt       time.Time // when a status last left Ready
	announced      int64     // the generation that was said to be all done
	statusSetback  setback

	// guide is the policy that changes follow; nil where the budget decides.
	guide *guide

	timers deadline.Timers[*cell]
	due    time.Time // when there is more to do for the row itself

	sums *sums // of the audit that is looking at it; nil if there is none
}

// New makes the row of a DaemonSet whose pods are known. The columns are its owner's, who alone changes them.
func New(info fact.DaemonSet, cfg *Config, now time.Time, columns map[string]*Column, pods map[types.UID]*Pod) *Row {
	r := &Row{
		info: info, cfg: cfg, now: now, columns: columns, cells: map[string]*cell{}, unplaced: map[types.UID]*Pod{},
		revisions: map[string]int{}, fresh: pace{window: 1}, again: pace{window: 1},
	}
	r.newSets()
	r.written, r.progress = info.Conditions, progressOf(&info, now)
	r.surge, r.rules = info.Strategy.Surges(), info.AllRules()
	for _, p := range pods {
		r.attach(p)
	}
	r.judgeNodes()
	return r
}

// Column is one Node. It never changes: a Node that changes gets another.
type Column struct {
	Info   fact.Node
	Node   *corev1.Node // just what placement rules read
	Health fact.Health
	Back   time.Time // since when it is in order, if it was not before
}

// What a row is told beside a fact.DaemonSet, a fact.Rollout, a fact.RolloutGone and a fact.Now.
type (
	// NodeChanged: the node of that name was one and is another; nil for none.
	NodeChanged struct {
		Name    string
		Was, Is *Column
	}
	// PodCame and PodWent: the row owns the pod from now on, or does not any more.
	PodCame struct{ Pod *Pod }
	PodWent struct{ Pod *Pod }
	// PodChanged: a pod that stays in its cell is to be like that.
	PodChanged struct {
		Pod  *Pod
		Info fact.Pod
	}
	// Answered is what became of an action; Known: the pod that it made has been seen.
	Answered struct {
		action.Answer
		Known bool
	}
	// Touched: something else wants the row looked at.
	Touched struct{}
	// Turn is the row's turn to act. So many changes may begin at the pace that it shares.
	Turn struct{ Allowed int }
)

// Result is what a row does in its turn: actions, in their order and each with its reason, and how many changes
// it has begun at the pace that it shares. Nothing comes of other events before that.
type Result struct {
	Actions []action.Action
	Begun   int
}

// Step takes in what the row is told at a moment.
func (r *Row) Step(now time.Time, event any) Result {
	r.now = now
	if t, is := event.(Turn); is {
		return r.act(t.Allowed)
	}
	if r.guide != nil {
		if r.guide.course.Reach(now) {
			r.tick()
			r.guide.course.Due()
		}
		r.follow(nil)
	}
	switch e := event.(type) {
	case fact.DaemonSet:
		r.update(e)
	case fact.Rollout:
		r.obey(e)
	case fact.RolloutGone:
		r.guide = nil
		r.refreshAll()
		r.judgeNodes()
	case NodeChanged:
		r.changeNode(e)
	case PodCame:
		r.attach(e.Pod)
	case PodWent:
		r.detach(e.Pod)
	case PodChanged:
		r.change(e.Pod, e.Info)
	case Answered:
		r.answered(e)
	case fact.Now:
		r.tick()
	}
	return Result{}
}

// Info is what the row was last told of its DaemonSet.
func (r *Row) Info() *fact.DaemonSet { return &r.info }

// PodsOfRevision is how many pods of the revision it has, whatever their state.
func (r *Row) PodsOfRevision(revision string) int { return r.revisions[revision] }

// Policy is the UID of the policy that the row's changes follow, whose pace they have; false if there is none.
func (r *Row) Policy() (types.UID, bool) {
	if r.guide == nil {
		return "", false
	}
	return r.guide.info.PolicyUID, true
}

// Course is that of the row's rollout, to be asked; nil if its changes follow no policy.
func (r *Row) Course() *course.Course {
	if r.guide == nil {
		return nil
	}
	return r.guide.course
}

// WantsPace reports whether some node's change would begin if the pace of the row's policy allowed it.
func (r *Row) WantsPace() bool { return r.guide != nil && r.guide.course.Wants() }

// Selects reports whether the placement rules of a revision want a daemon on a node.
func (r *Row) Selects(revision, node string) bool {
	col, c := r.columns[node], r.cells[node]
	return col != nil && r.rules.Selects(revision, col.Node, c != nil && len(c.pods) > 0)
}

// Settles reports whether nothing that the row goes by has changed of a node. The row has taken it in then.
func (r *Row) Settles(e NodeChanged) bool {
	c := r.cells[e.Name]
	if r.guide != nil || !e.same() && (c != nil || r.newest(e.Is) == placement.ShouldRun) {
		return false
	}
	if c != nil {
		c.column = e.Is
	}
	return true
}

// same reports whether placement rules read the same as before.
func (e *NodeChanged) same() bool { return e.Was != nil && e.Is != nil && e.Was.Node == e.Is.Node }

// Release gives all pods away, of a row that is not needed any more.
func (r *Row) Release() []*Pod {
	out := slices.Collect(maps.Values(r.unplaced))
	for _, c := range r.cells {
		out = append(out, c.pods...)
	}
	for _, p := range out {
		p.cell = nil
	}
	return out
}

// newSets makes the sets of cells, empty.
func (r *Row) newSets() {
	byNode := func(a, b *cell) bool { return a.node < b.node }
	byRank := func(a, b *cell) bool {
		return cmp.Or(cmp.Compare(a.verdict.rank, b.verdict.rank), cmp.Compare(a.node, b.node)) < 0
	}
	for w := range r.work {
		r.work[w] = btree.NewG(16, byRank)
	}
	for _, g := range groups {
		r.groups[g] = btree.NewG(16, byNode)
	}
}

func (r *Row) target() action.Target {
	return action.Target{UID: r.info.UID, Namespace: r.info.Namespace, Name: r.info.Name}
}

// place puts a new verdict of a cell into the totals and sets.
func (r *Row) place(c *cell, v verdict) {
	old := &c.verdict
	if s := r.sums; s != nil && c.audited == s.run {
		s.add(old, -1)
		s.add(&v, 1)
	}
	r.totals.add(old.counts, -1)
	r.totals.add(v.counts, 1)
	moved := old.work != v.work || old.rank != v.rank
	if moved && old.work != workNone {
		r.work[old.work].Delete(c)
	}
	for _, g := range groups {
		switch was, is := old.counts.has(g), v.counts.has(g); {
		case was && !is:
			r.groups[g].Delete(c)
		case is && !was:
			r.groups[g].ReplaceOrInsert(c)
		}
	}
	c.verdict = v
	if moved && v.work != workNone {
		r.work[v.work].ReplaceOrInsert(c)
	}
}

// Status is the row's running total in the API's terms.
func (r *Row) Status() fact.Status {
	t := &r.totals
	return fact.Status{
		ObservedGeneration: r.info.Generation,
		Desired:            t[desired], Current: t[current], Misscheduled: t[misscheduled],
		Ready: t[ready], Updated: t[updated], Available: t[available],
		Unavailable: t[desired] - t[available],
	}
}

// settled reports whether every desired cell has an available pod of the current revision.
func (r *Row) settled() bool {
	return r.totals[updated] == r.totals[desired] && r.totals[available] == r.totals[desired]
}

// budget is how many cells may be unavailable, and surge, at a time.
func (r *Row) budget() (maxUnavailable, maxSurge int) {
	return r.info.Strategy.Budget(int(r.totals[desired]))
}

// count is one of the numbers that a row keeps of its cells.
type count uint8

// The numbers. Those up to outdated go by the oldest pod of a desired cell, as the status
// does; those after it look at all live pods, as the rollout does.
const (
	desired count = iota
	current
	misscheduled
	ready
	updated
	available
	lacking  // desired, without an available pod
	outdated // desired, with one that is available and not updated
	down     // count against maxUnavailable
	surging  // count against maxSurge
	up       // have a pod that the rollout may rely on
	troubled // desired, and the last creation failed
	countCount
)

// counts are the numbers that one cell is in.
type counts uint16

func (c counts) has(n count) bool { return c>>n&1 > 0 }

// totals are the sums over a row's cells.
type totals [countCount]int32

func (t *totals) add(c counts, sign int32) {
	for n := range t {
		if c.has(count(n)) {
			t[n] += sign
		}
	}
}
