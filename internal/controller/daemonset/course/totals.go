package course

import (
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// step is the sums of one step, and its nodes that may be changed.
type step struct {
	sums sums
	// free are those that may be changed without asking limits; asking those that ask, and waiting
	// the same by group; open are the lines of groups whose domain is not full, by their first group.
	free, asking *btree.BTreeG[*node]
	waiting      map[*group]*waiting
	open         *btree.BTreeG[*line]
	// changing are those on which something is under way that has not failed, awaited those whose images are, excused
	// those that cannot take the change.
	changing, awaited, excused *btree.BTreeG[*node]
}

func (s *step) of(e standing.Effect) int32 { return int32(s.sums[e]) }

// waiting is the nodes of a group that wait in a step. The group stands in the line of one of its domains.
type waiting struct {
	nodes *btree.BTreeG[*node]
	line  *line
}

// line is the groups of a step that stand in line for one domain. When that fills, all of them wait, and none
// needs to be looked at; which of them another domain holds up is found out when it would be its turn.
type line struct {
	domain *domain
	groups *btree.BTreeG[*group]
	first  *group
}

// place is one value of a domain's label.
type place struct {
	domain int
	value  string
}

// domain is the sums of one place.
type domain struct {
	place                place
	nodes, down, staying int
	// full: no further node may go down. stuck: nodes that stay down see to that alone.
	full, stuck bool
	groups      map[*group]bool
	lines       map[*step]*line
}

// group is the nodes that are in the same domains.
type group struct {
	key     string
	domains []*domain
	members map[*node]bool
	// home is the domain in whose line it stands while none is full: one that is for nobody else, if it is in none.
	home *domain
}

// holder is a domain that lets no node of the group go; where none holds it up, its home.
func (g *group) holder() *domain {
	for _, d := range g.domains {
		if d.full {
			return d
		}
	}
	return g.home
}

func newDomain(p place) *domain {
	return &domain{place: p, groups: map[*group]bool{}, lines: map[*step]*line{}}
}

func (g *group) stuck() bool {
	return slices.ContainsFunc(g.domains, func(d *domain) bool { return d.stuck })
}

func byName(a, b *node) bool  { return a.name < b.name }
func byKey(a, b *group) bool  { return a.key < b.key }
func byFirst(a, b *line) bool { return a.first.key < b.first.key }

func (c *Course) step(s rolloutpolicy.Step) *step {
	t := c.steps[s]
	if t == nil {
		t = &step{
			free: btree.NewG(8, byName), asking: btree.NewG(8, byName), changing: btree.NewG(8, byName),
			awaited: btree.NewG(8, byName), excused: btree.NewG(8, byName),
			waiting: map[*group]*waiting{}, open: btree.NewG(8, byFirst),
		}
		c.steps[s] = t
	}
	return t
}

// account takes a node's old contribution off all sums and adds the new one.
func (c *Course) account(n *node, v view) {
	old := n.view
	if was, is := old.state.Verdict(), v.state.Verdict(); was != is {
		c.counts[was]--
		c.counts[is]++
	}
	if old.order != v.order {
		c.moved = append(c.moved, n.name)
	}
	s := c.step(n.step)
	for _, t := range []*sums{&c.totals, &s.sums} {
		t.add(old.counts, -1)
		t.add(v.counts, 1)
	}
	n.view = v
	for _, d := range n.group.domains {
		d.nodes += one(v.has(standing.Selected)) - one(old.has(standing.Selected))
		d.down += one(v.has(standing.Down)) - one(old.has(standing.Down))
		d.staying += one(v.has(standing.Stays)) - one(old.has(standing.Stays))
		c.measure(d)
	}
	s.offer(n)
	keep(c.blocked, n, v.has(standing.Ours) && v.state.Verdict() != standing.Changing)
	if s.sums[standing.Selected] == 0 && s.changing.Len() == 0 && s.free.Len() == 0 && s.asking.Len() == 0 {
		delete(c.steps, n.step)
	}
}

// keep puts the node among others, or takes it out.
func keep(of *btree.BTreeG[*node], n *node, in bool) {
	if in {
		of.ReplaceOrInsert(n)
	} else {
		of.Delete(n)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// offer puts the node among those that may be changed, or takes it out.
func (s *step) offer(n *node) {
	mayChange := n.view.has(standing.Pending) || n.view.has(standing.Held)
	keep(s.changing, n, n.view.has(standing.Ours) && n.view.state.Verdict() == standing.Changing)
	keep(s.awaited, n, n.view.state == standing.Awaiting)
	keep(s.excused, n, n.view.has(standing.Excused))
	keep(s.free, n, mayChange && n.view.free)
	_, asked := s.asking.Delete(n)
	switch {
	case mayChange && !n.view.free:
		s.asking.ReplaceOrInsert(n)
		s.wait(n)
	case asked:
		s.leave(n)
	}
}

// wait puts the node among those of its group, and the group in a line.
func (s *step) wait(n *node) {
	w := s.waiting[n.group]
	if w == nil {
		w = &waiting{nodes: btree.NewG(8, byName)}
		s.waiting[n.group] = w
		s.enter(n.group, w)
	}
	w.nodes.ReplaceOrInsert(n)
}

func (s *step) leave(n *node) {
	w := s.waiting[n.group]
	w.nodes.Delete(n)
	if w.nodes.Len() == 0 {
		delete(s.waiting, n.group)
		s.move(w.line, func() { w.line.groups.Delete(n.group) })
	}
}

// enter puts a group that waits in a line.
func (s *step) enter(g *group, w *waiting) {
	d := g.holder()
	w.line = d.lines[s]
	if w.line == nil {
		w.line = &line{domain: d, groups: btree.NewG(8, byKey)}
		d.lines[s] = w.line
	}
	s.move(w.line, func() { w.line.groups.ReplaceOrInsert(g) })
}

// move changes a line, and keeps its place among those that are open.
func (s *step) move(l *line, change func()) {
	if l.first != nil {
		s.open.Delete(l)
	}
	change()
	l.first, _ = l.groups.Min()
	switch {
	case l.first == nil:
		delete(l.domain.lines, s)
	case !l.domain.full:
		s.open.ReplaceOrInsert(l)
	}
}

// measure compares a domain with its limit. Its nodes wait differently when nothing
// but nodes out of order stands in their way.
func (c *Course) measure(d *domain) {
	limit := c.policy.Domains[d.place.domain].MaxUnavailable.Of(d.nodes)
	full, stuck := d.down >= limit, d.staying >= limit && d.staying > 0
	if full != d.full {
		d.full = full
		for s, l := range d.lines {
			s.move(l, func() {})
		}
	}
	if stuck != d.stuck {
		d.stuck = stuck
		for g := range d.groups {
			for n := range g.members {
				c.stale = append(c.stale, n)
			}
		}
	}
}

// regroup finds the domains that a node is in.
func (c *Course) regroup(n *node) {
	c.ungroup(n)
	var key strings.Builder
	var places []place
	for i := range c.domains() {
		value, has := n.fact.labels()[c.policy.Domains[i].Key]
		if has {
			places = append(places, place{i, value})
			key.WriteString(value)
		}
		key.WriteByte('\n')
	}
	g := c.groups[key.String()]
	if g == nil {
		g = &group{key: key.String(), members: map[*node]bool{}}
		for _, p := range places {
			d := c.places[p]
			if d == nil {
				d = newDomain(p)
				c.places[p] = d
			}
			d.groups[g] = true
			g.domains = append(g.domains, d)
		}
		g.home = newDomain(place{})
		if len(g.domains) > 0 {
			g.home = g.domains[0]
		}
		c.groups[g.key] = g
	}
	g.members[n] = true
	n.group = g
}

func (c *Course) domains() []rolloutpolicy.Domain {
	if c.policy == nil {
		return nil
	}
	return c.policy.Domains
}

// ungroup takes a node out of its domains.
func (c *Course) ungroup(n *node) {
	g := n.group
	if g == nil {
		return
	}
	c.account(n, n.view.nothing())
	n.group = nil
	delete(g.members, n)
	if len(g.members) > 0 {
		return
	}
	delete(c.groups, g.key)
	for _, d := range g.domains {
		delete(d.groups, g)
		if len(d.groups) == 0 {
			delete(c.places, d.place)
		}
	}
}

// sums counts nodes by effect.
type sums [standing.EffectCount]int

// over is how many nodes the end of the change does not wait for.
func (s *sums) over() int { return s[standing.Done] + s[standing.Excused] + s[standing.Late] }

func (s *sums) add(e standing.Effects, sign int) {
	for i := range s {
		if e.Has(standing.Effect(i)) {
			s[i] += sign
		}
	}
}

func (v *view) has(e standing.Effect) bool { return v.counts.Has(e) }

// mostHave reports whether the revision has not failed, and works on more than half of
// the nodes: a node that never had it must not keep a DaemonSet new for ever, whose
// changes ask for no steps.
func (c *Course) mostHave(revision string) bool {
	return revision != "" && !c.state.HasFailed(revision) && c.onMost(func(d *standing.Daemon) bool {
		return d.Revision == revision && !d.Since.IsZero()
	})
}

// mostWork reports whether more than half of the nodes have an available daemon, of another revision than the target.
// Beside another controller that makes pods of the newest everywhere.
func (c *Course) mostWork() bool {
	return !c.ds.Beside && c.onMost(func(d *standing.Daemon) bool {
		return d.Available && d.Revision != c.state.target
	})
}

// onMost reports whether something holds of the daemon on more than half of the nodes.
func (c *Course) onMost(holds func(*standing.Daemon) bool) bool {
	selected, held := 0, 0
	for _, n := range c.nodes {
		selected += one(n.chosen.any())
		held += one(n.chosen.any() && holds(&n.daemon))
	}
	return 2*held > selected
}
