package queue

import (
	"strings"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Queue is the nodes of a rollout. One owner at a time.
type Queue struct {
	// Totals are those of all nodes; Steps has the steps that have any.
	Totals Sums
	Steps  map[rolloutpolicy.Step]*Step
	// Blocked are the nodes that use up the limit and do not come up.
	Blocked *Members

	places map[Place]*Domain
	groups map[string]*Group
	stale  []*Member
}

// New returns a queue without nodes.
func New() Queue {
	return Queue{
		Steps: map[rolloutpolicy.Step]*Step{}, Blocked: newMembers(),
		places: map[Place]*Domain{}, groups: map[string]*Group{},
	}
}

// Stale returns the members that are to be judged again since it was last called: one of their domains became stuck,
// or is not any more.
func (q *Queue) Stale() []*Member {
	out := q.stale
	q.stale = nil
	return out
}

// Doubt has a member be judged again.
func (q *Queue) Doubt(m *Member) { q.stale = append(q.stale, m) }

// Doubtful reports whether Stale has any to return.
func (q *Queue) Doubtful() bool { return len(q.stale) > 0 }

// Places is how many places the nodes are in.
func (q *Queue) Places() int { return len(q.places) }

// Count takes a member's old contribution to a step off all sums and adds the new one. The domains are those of the
// policy that its group was found by.
func (q *Queue) Count(m *Member, at rolloutpolicy.Step, is Standing, domains []rolloutpolicy.Domain) {
	was := m.Is
	s := q.Steps[at]
	if s == nil {
		s = newStep()
		q.Steps[at] = s
	}
	for _, t := range []*Sums{&q.Totals, &s.Sums} {
		t.Add(was.Counts, -1)
		t.Add(is.Counts, 1)
	}
	m.Is = is
	for _, d := range m.Group.Domains {
		d.count(&was, &is)
		q.measure(d, domains)
	}
	s.offer(m)
	keep(q.Blocked, m, is.Has(standing.Ours) && is.State.Verdict() != standing.Changing)
	if s.empty() {
		delete(q.Steps, at)
	}
}

// measure compares a domain with its limit. Its nodes wait differently when nothing
// but nodes out of order stands in their way.
func (q *Queue) measure(d *Domain, domains []rolloutpolicy.Domain) {
	limit := domains[d.Place.Domain].MaxUnavailable.Of(d.Nodes)
	full, stuck := d.Down >= limit, d.Staying >= limit && d.Staying > 0
	if full != d.Full {
		d.Full = full
		for s, l := range d.lines {
			s.move(l, func() {})
		}
	}
	if stuck != d.stuck {
		d.stuck = stuck
		for g := range d.groups {
			for m := range g.members {
				q.Doubt(m)
			}
		}
	}
}

// Join puts a member that counts as nothing into the group of its domains, which its labels say.
func (q *Queue) Join(m *Member, labels map[string]string, domains []rolloutpolicy.Domain) {
	var key strings.Builder
	var places []Place
	for i := range domains {
		value, has := labels[domains[i].Key]
		if has {
			places = append(places, Place{i, value})
			key.WriteByte('=') // an empty value is not none
			key.WriteString(value)
		}
		key.WriteByte('\n')
	}
	g := q.groups[key.String()]
	if g == nil {
		g = q.newGroup(key.String(), places)
	}
	g.members[m] = true
	m.Group = g
}

func (q *Queue) newGroup(key string, places []Place) *Group {
	g := &Group{key: key, members: map[*Member]bool{}}
	for _, p := range places {
		d := q.places[p]
		if d == nil {
			d = newDomain(p)
			q.places[p] = d
		}
		d.groups[g] = true
		g.Domains = append(g.Domains, d)
	}
	g.home = newDomain(Place{})
	if len(g.Domains) > 0 {
		g.home = g.Domains[0]
	}
	q.groups[key] = g
	return g
}

// Leave takes a member that counts as nothing out of its group.
func (q *Queue) Leave(m *Member) {
	g := m.Group
	m.Group = nil
	delete(g.members, m)
	if len(g.members) > 0 {
		return
	}
	delete(q.groups, g.key)
	for _, d := range g.Domains {
		delete(d.groups, g)
		if len(d.groups) == 0 {
			delete(q.places, d.Place)
		}
	}
}
