package course

import (
	"slices"
	"strings"

	"github.com/google/btree"

	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// step is the sums of one step, and its nodes that may be changed.
type step struct {
	sums sums
	// free are those that may be changed without asking limits; waiting those that
	// ask, by group; open are the groups of waiting that no domain holds up.
	free    *btree.BTreeG[*node]
	waiting map[*group]*btree.BTreeG[*node]
	open    *btree.BTreeG[*group]
	// changing are those on which something is under way that has not failed.
	changing *btree.BTreeG[*node]
}

func (s *step) of(e Effect) int32 { return int32(s.sums[e]) }

// over is how many nodes of the step are not waited for.
func (s *step) over() int { return s.sums[Done] + s.sums[Excused] + s.sums[Passed] }

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
	groups      []*group
}

// group is the nodes that are in the same domains.
type group struct {
	key     string
	domains []*domain
	members map[*node]bool
	// waits are the steps in which some of its nodes wait.
	waits map[*step]bool
}

func (g *group) full() bool {
	return slices.ContainsFunc(g.domains, func(d *domain) bool { return d.full })
}
func (g *group) stuck() bool {
	return slices.ContainsFunc(g.domains, func(d *domain) bool { return d.stuck })
}

func byName(a, b *node) bool { return a.name < b.name }
func byKey(a, b *group) bool { return a.key < b.key }

func (c *Course) step(s rolloutpolicy.Step) *step {
	t := c.steps[s]
	if t == nil {
		t = &step{free: btree.NewG(8, byName), waiting: map[*group]*btree.BTreeG[*node]{}, open: btree.NewG(8, byKey), changing: btree.NewG(8, byName)}
		c.steps[s] = t
	}
	return t
}

// account takes a node's old contribution off all sums and adds the new one.
func (c *Course) account(n *node, v standing) {
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
		d.nodes += one(v.has(Selected)) - one(old.has(Selected))
		d.down += one(v.has(Down)) - one(old.has(Down))
		d.staying += one(v.has(Stays)) - one(old.has(Stays))
		c.measure(d)
	}
	s.offer(n)
	if v.has(Ours) && v.state.Verdict() != Changing {
		c.blocked.ReplaceOrInsert(n)
	} else {
		c.blocked.Delete(n)
	}
	if s.sums[Selected] == 0 && s.changing.Len() == 0 && s.free.Len() == 0 && len(s.waiting) == 0 {
		delete(c.steps, n.step)
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
	mayChange := n.view.has(Pending) || n.view.has(Held)
	if n.view.has(Ours) && n.view.state.Verdict() == Changing {
		s.changing.ReplaceOrInsert(n)
	} else {
		s.changing.Delete(n)
	}
	if mayChange && n.view.free {
		s.free.ReplaceOrInsert(n)
	} else {
		s.free.Delete(n)
	}
	w := s.waiting[n.group]
	switch {
	case mayChange && !n.view.free:
		if w == nil {
			w = btree.NewG(8, byName)
			s.waiting[n.group], n.group.waits[s] = w, true
		}
		w.ReplaceOrInsert(n)
		s.admit(n.group)
	case w != nil:
		if w.Delete(n); w.Len() == 0 {
			delete(s.waiting, n.group)
			delete(n.group.waits, s)
			s.open.Delete(n.group)
		}
	}
}

// admit brings the step's open groups in line with the limits of the group's domains.
func (s *step) admit(g *group) {
	if s.waiting[g] == nil || g.full() {
		s.open.Delete(g)
		return
	}
	s.open.ReplaceOrInsert(g)
}

// measure compares a domain with its limit. Its nodes wait differently when nothing
// but nodes out of order stands in their way.
func (c *Course) measure(d *domain) {
	limit := c.policy.Domains[d.place.domain].MaxUnavailable.Of(d.nodes)
	full, stuck := d.down >= limit, d.staying >= limit && d.staying > 0
	if full != d.full {
		d.full = full
		for _, g := range d.groups {
			for s := range g.waits {
				s.admit(g)
			}
		}
	}
	if stuck != d.stuck {
		d.stuck = stuck
		for _, g := range d.groups {
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
		g = &group{key: key.String(), members: map[*node]bool{}, waits: map[*step]bool{}}
		for _, p := range places {
			d := c.places[p]
			if d == nil {
				d = &domain{place: p}
				c.places[p] = d
			}
			d.groups = append(d.groups, g)
			g.domains = append(g.domains, d)
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
	if delete(g.members, n); len(g.members) > 0 {
		return
	}
	delete(c.groups, g.key)
	for _, d := range g.domains {
		d.groups = slices.DeleteFunc(d.groups, func(o *group) bool { return o == g })
		if len(d.groups) == 0 {
			delete(c.places, d.place)
		}
	}
}
