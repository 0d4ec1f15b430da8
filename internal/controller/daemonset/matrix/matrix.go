package matrix

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Matrix holds all rows and columns, and takes each event to the rows that it
// concerns. It is not safe for concurrent use.
type Matrix struct {
	cfg     row.Config
	now     time.Time
	rows    map[types.UID]*entry
	columns map[string]*row.Column
	pods    map[types.UID]*row.Pod
	// waiting holds pods of DaemonSets that are not known, by owner.
	waiting map[types.UID]map[types.UID]*row.Pod
	timers  deadline.Timers[*entry]
	dirty   []*entry
	// rollouts are those of DaemonSets that follow a policy, paces those of the
	// policies, health the nodes that are out of order.
	rollouts map[types.UID]fact.Rollout
	paces    map[types.UID]*pace
	health   map[string]fact.Health
	// audit is the one under way, nil if there is none; audits counts them.
	audit  *audit
	audits uint8
}

// entry is a row on the matrix's lists.
type entry struct {
	*row.Row
	dirty bool // Ready looks at it
	timer deadline.Timer[*entry]
	// turn is how much of the pace had been spent when it took from that last: who shares one takes in turn.
	turn int
	took *pace
}

// New returns an empty matrix.
func New(cfg row.Config) *Matrix {
	return &Matrix{
		cfg:     cfg.WithDefaults(),
		rows:    map[types.UID]*entry{},
		columns: map[string]*row.Column{},
		pods:    map[types.UID]*row.Pod{},
		waiting: map[types.UID]map[types.UID]*row.Pod{},

		rollouts: map[types.UID]fact.Rollout{},
		paces:    map[types.UID]*pace{},
		health:   map[string]fact.Health{},
	}
}

// Step takes an event in.
func (m *Matrix) Step(e Event) {
	switch e := e.(type) {
	case fact.DaemonSet:
		m.updateDaemonSet(e)
	case fact.DaemonSetGone:
		m.deleteDaemonSet(types.UID(e))
	case fact.Node:
		m.updateNode(e)
	case fact.NodeGone:
		m.deleteNode(string(e))
	case fact.Health:
		m.updateHealth(e)
	case fact.Rollout:
		m.updateRollout(e)
	case fact.RolloutGone:
		m.deleteRollout(types.UID(e))
	case fact.Pod:
		m.updatePod(e)
	case fact.PodGone:
		m.deletePod(types.UID(e))
	case fact.Now:
		m.tick(e.Time)
	case action.Answer:
		if r := m.rows[e.Action.Row()]; r != nil {
			m.tell(r, row.Answered{Answer: e, Known: m.pods[e.Pod] != nil})
		}
	}
}

// tell tells a row of an event, and has Ready look at it.
func (m *Matrix) tell(r *entry, event any) {
	r.Step(m.now, event)
	if !r.dirty {
		r.dirty = true
		m.dirty = append(m.dirty, r)
	}
}

// arm sets the timers of the rows that something happened to.
func (m *Matrix) arm() {
	for _, r := range m.dirty {
		if m.rows[r.Info().UID] == r {
			m.timers.Set(&r.timer, m.next(r))
		}
	}
}

func (m *Matrix) updateDaemonSet(info fact.DaemonSet) {
	if r := m.rows[info.UID]; r != nil {
		if r.Changes(&info) {
			m.tell(r, info)
		}
		return
	}
	r := &entry{Row: row.New(info, &m.cfg, m.now, m.columns, m.waiting[info.UID])}
	r.timer.Owner = r
	m.rows[info.UID] = r
	delete(m.waiting, info.UID)
	m.tell(r, row.Touched{})
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
	for _, p := range r.Release() {
		m.wait(p)
	}
}

// updateNode: a change of neither name, labels nor taints is no work.
func (m *Matrix) updateNode(info fact.Node) {
	was := m.columns[info.Name]
	if was != nil && was.Info.Equal(info) {
		return
	}
	var back time.Time
	if was != nil {
		back = was.Back
	}
	m.setColumn(info.Name, &row.Column{Info: info, Health: m.health[info.Name], Back: back, Node: &corev1.Node{
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

func (m *Matrix) setColumn(name string, col *row.Column) {
	was := m.columns[name]
	m.columns[name] = col
	if col == nil {
		delete(m.columns, name)
	}
	for _, r := range m.rows {
		if e := (row.NodeChanged{Name: name, Was: was, Is: col}); !r.Settles(e) {
			m.tell(r, e)
		}
	}
}

func (m *Matrix) updatePod(info fact.Pod) {
	p := m.pods[info.UID]
	switch {
	case p == nil:
		p = &row.Pod{}
		m.pods[info.UID] = p
	case *p.Info() == info:
		return
	case p.StaysIn(&info):
		m.tell(m.rows[info.Owner], row.PodChanged{Pod: p, Info: info})
		return
	default:
		m.detach(p)
	}
	p.Update(info, m.now)
	m.attach(p)
}

func (m *Matrix) deletePod(uid types.UID) {
	if p := m.pods[uid]; p != nil {
		m.detach(p)
		delete(m.pods, uid)
	}
}

func (m *Matrix) attach(p *row.Pod) {
	if r := m.rows[p.Info().Owner]; r != nil {
		m.tell(r, row.PodCame{Pod: p})
		return
	}
	m.wait(p)
}

func (m *Matrix) detach(p *row.Pod) {
	is := p.Info()
	if r := m.rows[is.Owner]; r != nil {
		m.tell(r, row.PodWent{Pod: p})
		return
	}
	delete(m.waiting[is.Owner], is.UID)
	if len(m.waiting[is.Owner]) == 0 {
		delete(m.waiting, is.Owner)
	}
}

// wait keeps a pod without a row. What was in flight for it went with the row.
func (m *Matrix) wait(p *row.Pod) {
	p.Forget()
	is := p.Info()
	set := m.waiting[is.Owner]
	if set == nil {
		set = map[types.UID]*row.Pod{}
		m.waiting[is.Owner] = set
	}
	set[is.UID] = p
}

// tick moves time forward and does what was due.
func (m *Matrix) tick(now time.Time) {
	m.arm()
	if now.After(m.now) {
		m.now = now
	}
	for t := m.timers.Pop(m.now); t != nil; t = m.timers.Pop(m.now) {
		m.tell(t.Owner, fact.Now{Time: m.now})
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
		return r.PodsOfRevision(revision)
	}
	return 0
}

// Pod returns what the matrix was last told about a pod.
func (m *Matrix) Pod(uid types.UID) (fact.Pod, bool) {
	if p := m.pods[uid]; p != nil {
		return *p.Info(), true
	}
	return fact.Pod{}, false
}

// Pods returns the UIDs of all pods it knows, in no order.
func (m *Matrix) Pods() []types.UID { return slices.Collect(maps.Keys(m.pods)) }
