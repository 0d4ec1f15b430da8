package matrix

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/deadline"
)

// Matrix holds all rows and columns, and takes each event to the rows that it
// concerns. It is not safe for concurrent use.
type Matrix struct {
	cfg     Config
	now     time.Time
	rows    map[types.UID]*row
	columns map[string]*column
	pods    map[types.UID]*trackedPod
	// waiting holds pods of DaemonSets that are not known, by owner.
	waiting map[types.UID]map[types.UID]*trackedPod
	timers  deadline.Timers[*row]
	dirty   []*row
	// rollouts are those of DaemonSets that follow a policy, paces those of the
	// policies, health the nodes that are out of order.
	rollouts map[types.UID]RolloutInfo
	paces    map[types.UID]*course.Pace
	health   map[string]NodeHealth
	// audit is the one under way, nil if there is none; audits counts them.
	audit  *audit
	audits uint8
}

// column is one Node. It never changes: a Node that changes gets another.
type column struct {
	info   NodeInfo
	node   *corev1.Node // just what placement rules read
	health NodeHealth
}

// New returns an empty matrix.
func New(cfg Config) *Matrix {
	return &Matrix{
		cfg:     cfg.withDefaults(),
		rows:    map[types.UID]*row{},
		columns: map[string]*column{},
		pods:    map[types.UID]*trackedPod{},
		waiting: map[types.UID]map[types.UID]*trackedPod{},

		rollouts: map[types.UID]RolloutInfo{},
		paces:    map[types.UID]*course.Pace{},
		health:   map[string]NodeHealth{},
	}
}

// Step takes an event in.
func (m *Matrix) Step(e Event) {
	switch e := e.(type) {
	case DaemonSetInfo:
		m.updateDaemonSet(e)
	case DaemonSetGone:
		m.deleteDaemonSet(types.UID(e))
	case NodeInfo:
		m.updateNode(e)
	case NodeGone:
		m.deleteNode(string(e))
	case NodeHealth:
		m.updateHealth(e)
	case RolloutInfo:
		m.updateRollout(e)
	case RolloutGone:
		m.deleteRollout(types.UID(e))
	case PodInfo:
		m.updatePod(e)
	case PodGone:
		m.deletePod(types.UID(e))
	case Now:
		m.tick(e.Time)
	case Answer:
		if r := m.rows[e.Action.Row()]; r != nil {
			m.tell(r, answered{e, m.pods[e.Pod] != nil})
		}
	}
}

// tell tells a row of an event, and has Ready look at it.
func (m *Matrix) tell(r *row, event any) {
	r.step(m.now, event)
	if !r.dirty {
		r.dirty = true
		m.dirty = append(m.dirty, r)
	}
}

// arm sets the timers of the rows that something happened to.
func (m *Matrix) arm() {
	for _, r := range m.dirty {
		if m.rows[r.info.UID] == r {
			m.timers.Set(&r.timer, m.next(r))
		}
	}
}

func (m *Matrix) updateDaemonSet(info DaemonSetInfo) {
	if r := m.rows[info.UID]; r != nil {
		if r.changes(&info) {
			m.tell(r, info)
		}
		return
	}
	r := newRow(info, &m.cfg, m.now, m.columns, m.waiting[info.UID])
	m.rows[info.UID] = r
	delete(m.waiting, info.UID)
	m.tell(r, touched{})
	if rollout, known := m.rollouts[info.UID]; known {
		m.guide(r, rollout)
	}
}

func (m *Matrix) deleteDaemonSet(uid types.UID) {
	m.forgetRollout(uid)
	r := m.rows[uid]
	if r == nil {
		return
	}
	delete(m.rows, uid)
	m.timers.Stop(&r.timer)
	for _, p := range r.unplaced {
		m.wait(p)
	}
	for _, c := range r.cells {
		for _, p := range c.pods {
			p.cell = nil
			m.wait(p)
		}
	}
}

// updateNode: a change of neither name, labels nor taints is no work.
func (m *Matrix) updateNode(info NodeInfo) {
	if col := m.columns[info.Name]; col != nil && col.info.Equal(info) {
		return
	}
	m.setColumn(info.Name, &column{info: info, health: m.health[info.Name], node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: info.Name, Labels: info.Labels},
		Spec:       corev1.NodeSpec{Taints: info.Taints},
	}})
}

func (m *Matrix) deleteNode(name string) {
	delete(m.health, name)
	if m.columns[name] != nil {
		m.setColumn(name, nil)
	}
}

func (m *Matrix) setColumn(name string, col *column) {
	was := m.columns[name]
	m.columns[name] = col
	if col == nil {
		delete(m.columns, name)
	}
	for _, r := range m.rows {
		m.tellOf(r, name, was, col)
	}
}

// tellOf tells a row of a node. Where nothing that it goes by has changed, there is no work.
func (m *Matrix) tellOf(r *row, name string, was, col *column) {
	c, same := r.cells[name], was != nil && col != nil && was.node == col.node
	switch {
	case r.guide != nil, !same && (c != nil || r.newest(col) == placement.ShouldRun):
		m.tell(r, nodeChanged{name, was, col})
	case c != nil:
		c.column = col
	}
}

func (m *Matrix) updatePod(info PodInfo) {
	p := m.pods[info.UID]
	switch {
	case p == nil:
		p = &trackedPod{}
		m.pods[info.UID] = p
	case p.info == info:
		return
	case p.cell != nil && info.Owner == p.info.Owner && info.Node == p.info.Node:
		m.tell(m.rows[info.Owner], podChanged{p, info})
		return
	default:
		m.detach(p)
	}
	p.update(info, m.now)
	m.attach(p)
}

func (m *Matrix) deletePod(uid types.UID) {
	if p := m.pods[uid]; p != nil {
		m.detach(p)
		delete(m.pods, uid)
	}
}

func (m *Matrix) attach(p *trackedPod) {
	if r := m.rows[p.info.Owner]; r != nil {
		m.tell(r, podCame{p})
		return
	}
	m.wait(p)
}

func (m *Matrix) detach(p *trackedPod) {
	if r := m.rows[p.info.Owner]; r != nil {
		m.tell(r, podWent{p})
		return
	}
	delete(m.waiting[p.info.Owner], p.info.UID)
	if len(m.waiting[p.info.Owner]) == 0 {
		delete(m.waiting, p.info.Owner)
	}
}

// wait keeps a pod without a row. What was in flight for it went with the row.
func (m *Matrix) wait(p *trackedPod) {
	p.doomedUntil, p.unsureUntil = time.Time{}, time.Time{}
	set := m.waiting[p.info.Owner]
	if set == nil {
		set = map[types.UID]*trackedPod{}
		m.waiting[p.info.Owner] = set
	}
	set[p.info.UID] = p
}

// tick moves time forward and does what was due.
func (m *Matrix) tick(now time.Time) {
	m.arm()
	if now.After(m.now) {
		m.now = now
	}
	for t := m.timers.Pop(m.now); t != nil; t = m.timers.Pop(m.now) {
		m.tell(t.Owner, Now{m.now})
	}
}

// NextTick returns when a Now has something to do next, if ever.
func (m *Matrix) NextTick() (time.Time, bool) {
	m.arm()
	return m.timers.Next()
}

// PodsOfRevision returns how many pods the DaemonSet owns that carry the
// revision, whatever their state.
func (m *Matrix) PodsOfRevision(uid types.UID, revision string) int {
	if r := m.rows[uid]; r != nil {
		return r.revisions[revision]
	}
	return 0
}

// Pod returns what the matrix was last told about a pod.
func (m *Matrix) Pod(uid types.UID) (PodInfo, bool) {
	if p := m.pods[uid]; p != nil {
		return p.info, true
	}
	return PodInfo{}, false
}

// Pods returns the UIDs of all pods it knows, in no order.
func (m *Matrix) Pods() []types.UID { return slices.Collect(maps.Keys(m.pods)) }
