package matrix

import (
	"cmp"
	"time"

	"github.com/google/btree"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/deadline"
)

// row is one DaemonSet: its cells, the sets of those that want something, and
// the running totals. All that it learns and does goes through step.
//
// It knows nothing of other rows nor of what they share, calls nobody back, and changes no column.
type row struct {
	cfg   *Config // never changes
	now   time.Time
	info  DaemonSetInfo
	surge bool // whether the strategy allows a second pod on a node
	rules placement.Set
	cells map[string]*cell
	// columns are all nodes, as the matrix knows them.
	columns map[string]*column

	totals    totals
	work      [workCount]*btree.BTreeG[*cell]
	groups    [countCount]*btree.BTreeG[*cell]
	unplaced  map[types.UID]*trackedPod // owned pods that name no node
	revisions map[string]int            // owned pods by revision

	// fresh is the pace of creations in cells where the last one did not fail,
	// again that of the others, so that these hold up none.
	fresh, again pace
	deletes      int // deletions in flight

	progress progress
	untold   []*cell // with news about a pod that cannot be placed

	// written are the conditions as the API has them for all we know; unsaid
	// tells that the status differs from the API's.
	written        Conditions
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

	dirty bool                 // the matrix has it on its list
	timer deadline.Timer[*row] // in the matrix
}

// newRow makes the row of a DaemonSet whose pods are known.
func newRow(info DaemonSetInfo, cfg *Config, now time.Time, columns map[string]*column, pods map[types.UID]*trackedPod) *row {
	r := &row{
		info: info, cfg: cfg, now: now, columns: columns, cells: map[string]*cell{}, unplaced: map[types.UID]*trackedPod{},
		revisions: map[string]int{}, fresh: pace{window: 1}, again: pace{window: 1},
	}
	r.newSets()
	r.written, r.progress = info.Conditions, progressOf(&info, now)
	r.timer.Owner = r
	r.surge, r.rules = allowsSurge(info.Strategy), info.rules()
	for _, p := range pods {
		r.attach(p)
	}
	r.judgeNodes()
	return r
}

// What a row is told beside a DaemonSetInfo, a RolloutInfo, a RolloutGone and a Now.
type (
	// nodeChanged: the node of that name was one and is another; nil for none.
	nodeChanged struct {
		name    string
		was, is *column
	}
	podCame struct{ pod *trackedPod }
	podWent struct{ pod *trackedPod }
	// podChanged: a pod that stays in its cell is to be like that.
	podChanged struct {
		pod  *trackedPod
		info PodInfo
	}
	// answered is what became of an action; known: the pod that it made has been seen.
	answered struct {
		Answer
		known bool
	}
	// touched: something else wants the row looked at.
	touched struct{}
	// turn is the row's turn to act. So many changes may begin at the pace that it shares.
	turn struct{ allowed int }
)

// result is what a row does in its turn: actions, in their order and each with its reason, and how many changes
// it has begun at the pace that it shares. Nothing comes of other events before that.
type result struct {
	actions []Action
	begun   int
}

// step takes in what the row is told at a moment.
func (r *row) step(now time.Time, event any) result {
	r.now = now
	if t, is := event.(turn); is {
		return r.act(t.allowed)
	}
	if r.guide != nil {
		r.guide.course.Tick(now)
		r.follow(nil)
	}
	switch e := event.(type) {
	case DaemonSetInfo:
		r.update(e)
	case RolloutInfo:
		r.obey(e)
	case RolloutGone:
		r.guide = nil
		r.refreshAll()
		r.judgeNodes()
	case nodeChanged:
		r.changeNode(e)
	case podCame:
		r.attach(e.pod)
	case podWent:
		r.detach(e.pod)
	case podChanged:
		r.change(e.pod, e.info)
	case answered:
		r.answered(e)
	case Now:
		r.tick()
	}
	return result{}
}

// newSets makes the sets of cells, empty.
func (r *row) newSets() {
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

func (r *row) target() Target {
	return Target{UID: r.info.UID, Namespace: r.info.Namespace, Name: r.info.Name}
}

// place puts a new verdict of a cell into the totals and sets.
func (r *row) place(c *cell, v verdict) {
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

// status is the row's running total in the API's terms.
func (r *row) status() Status {
	t := &r.totals
	return Status{
		ObservedGeneration: r.info.Generation,
		Desired:            t[desired], Current: t[current], Misscheduled: t[misscheduled],
		Ready: t[ready], Updated: t[updated], Available: t[available],
		Unavailable: t[desired] - t[available],
	}
}

// settled reports whether every desired cell has an available pod of the current
// revision.
func (r *row) settled() bool {
	return r.totals[updated] == r.totals[desired] && r.totals[available] == r.totals[desired]
}

// budget resolves the strategy against the number of desired cells.
func (r *row) budget() (maxUnavailable, maxSurge int) {
	desired := int(r.totals[desired])
	maxUnavailable = resolve(r.info.Strategy.MaxUnavailable, desired)
	maxSurge = resolve(r.info.Strategy.MaxSurge, desired)
	if desired > 0 && maxUnavailable == 0 && maxSurge == 0 {
		maxUnavailable = 1
	}
	return maxUnavailable, maxSurge
}

// resolve rounds percentages up. What is neither a number nor a percentage,
// which the API does not accept, counts as zero.
func resolve(v intstr.IntOrString, total int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, total, true)
	if err != nil {
		return 0
	}
	return n
}

func allowsSurge(s Strategy) bool { return !s.OnDelete && resolve(s.MaxSurge, 1) > 0 }

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
