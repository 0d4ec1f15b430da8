package matrix

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/deadline"
)

// Matrix holds all rows, columns and cells. It is not safe for concurrent use.
type Matrix struct {
	cfg     Config
	now     time.Time
	rows    map[types.UID]*row
	columns map[string]*column
	pods    map[types.UID]*trackedPod
	// waiting holds pods of DaemonSets that are not known, by owner.
	waiting map[types.UID]map[types.UID]*trackedPod
	timers  deadline.Timers[timed]
	dirty   []*row
}

// column is one Node.
type column struct {
	info NodeInfo
	node *corev1.Node // just what placement rules read
}

// New returns an empty matrix.
func New(cfg Config) *Matrix {
	return &Matrix{
		cfg:     cfg.withDefaults(),
		rows:    map[types.UID]*row{},
		columns: map[string]*column{},
		pods:    map[types.UID]*trackedPod{},
		waiting: map[types.UID]map[types.UID]*trackedPod{},
	}
}

// UpdateDaemonSet adds or changes a row.
func (m *Matrix) UpdateDaemonSet(info DaemonSetInfo) {
	r := m.rows[info.UID]
	if r == nil {
		m.addRow(info)
		return
	}
	old := r.info
	if info.Placement != nil && old.Placement != nil && info.Placement.key == old.Placement.key {
		info.Placement = old.Placement
	}
	if old == info {
		return
	}
	r.info, r.surge = info, allowsSurge(info.Strategy)
	m.touch(r)
	if info.Generation != old.Generation {
		r.fresh.until, r.again.until = time.Time{}, time.Time{}
		for _, c := range r.cells {
			c.setback = setback{}
		}
		r.statusFailures, r.statusRetryAt = 0, time.Time{}
	}
	switch {
	case info.Placement != old.Placement:
		m.replaceRow(r)
	case info.Revision != old.Revision || info.Generation != old.Generation ||
		info.Strategy != old.Strategy || info.MinReadySeconds != old.MinReadySeconds:
		for _, c := range r.cells {
			m.refresh(c)
		}
	}
}

func (m *Matrix) addRow(info DaemonSetInfo) {
	r := newRow(info, m.now)
	m.rows[info.UID] = r
	m.touch(r)
	for _, p := range m.waiting[info.UID] {
		m.attach(p)
	}
	delete(m.waiting, info.UID)
	m.replaceRow(r)
}

// replaceRow judges every node anew for the row.
func (m *Matrix) replaceRow(r *row) {
	for name, col := range m.columns {
		m.judgeNode(r, name, col)
	}
}

// judgeNode brings one cell in line with its node, which may be nil.
func (m *Matrix) judgeNode(r *row, name string, col *column) {
	eligibility := ShouldNotRun
	if col != nil {
		eligibility, _ = r.info.Placement.judge(col.node)
	}
	c := r.cells[name]
	if c == nil {
		if eligibility != ShouldRun {
			return
		}
		c = m.addCell(r, name)
	}
	c.column, c.eligibility = col, eligibility
	m.refresh(c)
}

func (m *Matrix) addCell(r *row, name string) *cell {
	c := &cell{row: r, node: name, column: m.columns[name]}
	c.timer.Owner.cell = c
	if c.column != nil {
		c.eligibility, _ = r.info.Placement.judge(c.column.node)
	}
	r.cells[name] = c
	r.phases[Idle]++
	return c
}

// DeleteDaemonSet drops a row. Its pods stay known, in case it comes back.
func (m *Matrix) DeleteDaemonSet(uid types.UID) {
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
		m.timers.Stop(&c.timer)
		for _, p := range c.pods {
			p.cell = nil
			m.wait(p)
		}
	}
}

// UpdateNode adds or changes a column. A change of neither name, labels nor
// taints is no work.
func (m *Matrix) UpdateNode(info NodeInfo) {
	if col := m.columns[info.Name]; col != nil && col.info.Equal(info) {
		return
	}
	col := &column{info: info, node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: info.Name, Labels: info.Labels},
		Spec:       corev1.NodeSpec{Taints: info.Taints},
	}}
	m.columns[info.Name] = col
	for _, r := range m.rows {
		m.judgeNode(r, info.Name, col)
	}
}

// DeleteNode drops a column. Cells with pods outlive it.
func (m *Matrix) DeleteNode(name string) {
	if m.columns[name] == nil {
		return
	}
	delete(m.columns, name)
	for _, r := range m.rows {
		m.judgeNode(r, name, nil)
	}
}

// UpdatePod adds or changes a pod that a DaemonSet controls or is about to.
func (m *Matrix) UpdatePod(info PodInfo) {
	p := m.pods[info.UID]
	switch {
	case p == nil:
		p = &trackedPod{}
		p.update(info, m.now)
		m.pods[info.UID] = p
		m.attach(p)
		return
	case p.info == info:
		return
	}
	c := p.cell
	if c == nil || info.Owner != p.info.Owner || info.Node != p.info.Node {
		m.detach(p)
		p.update(info, m.now)
		m.attach(p)
		return
	}
	m.countRevision(c.row, p.info.Revision, -1)
	m.countRevision(c.row, info.Revision, 1)
	c.remove(p)
	p.update(info, m.now)
	c.insert(p)
	m.refresh(c)
}

// DeletePod forgets a pod.
func (m *Matrix) DeletePod(uid types.UID) {
	p := m.pods[uid]
	if p == nil {
		return
	}
	m.detach(p)
	delete(m.pods, uid)
}

func (m *Matrix) attach(p *trackedPod) {
	r := m.rows[p.info.Owner]
	if r == nil {
		m.wait(p)
		return
	}
	m.countRevision(r, p.info.Revision, 1)
	if p.info.Node == "" {
		r.unplaced[p.info.UID] = p
		return
	}
	c := r.cells[p.info.Node]
	if c == nil {
		c = m.addCell(r, p.info.Node)
	}
	c.insert(p)
	m.refresh(c)
}

func (m *Matrix) detach(p *trackedPod) {
	r := m.rows[p.info.Owner]
	if r == nil {
		delete(m.waiting[p.info.Owner], p.info.UID)
		if len(m.waiting[p.info.Owner]) == 0 {
			delete(m.waiting, p.info.Owner)
		}
		return
	}
	m.countRevision(r, p.info.Revision, -1)
	delete(r.unplaced, p.info.UID)
	if c := p.cell; c != nil {
		c.remove(p)
		c.creating.left = p.info.UID
		m.refresh(c)
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

func (m *Matrix) countRevision(r *row, revision string, by int) {
	if r.revisions[revision] += by; r.revisions[revision] == 0 {
		delete(r.revisions, revision)
	}
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

// Tick moves time forward and does what was due. Time does not go back.
func (m *Matrix) Tick(now time.Time) {
	if now.After(m.now) {
		m.now = now
	}
	for t := m.timers.Pop(m.now); t != nil; t = m.timers.Pop(m.now) {
		if t.Owner.row != nil {
			m.touch(t.Owner.row)
			continue
		}
		t.Owner.cell.expire(m.now, m.cfg.ExpectationsTimeout)
		m.refresh(t.Owner.cell)
	}
}

// NextTick returns when Tick has something to do next, if ever.
func (m *Matrix) NextTick() (time.Time, bool) { return m.timers.Next() }

// refresh judges a cell anew after anything about it changed.
func (m *Matrix) refresh(c *cell) {
	v, _ := judge(c, m.now)
	c.row.place(c, v)
	m.timers.Set(&c.timer, v.wake)
	m.touch(c.row)
	m.noteUnplaceable(c)
	if c.forgettable() {
		m.timers.Stop(&c.timer)
		c.row.phases[Idle]--
		delete(c.row.cells, c.node)
	}
}

func (m *Matrix) touch(r *row) {
	if !r.dirty {
		r.dirty = true
		m.dirty = append(m.dirty, r)
	}
}
