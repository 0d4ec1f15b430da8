package queue

import (
	"github.com/google/btree"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
)

// Standing is what a member counts as.
type Standing struct {
	State standing.State
	// Counts is what it counts as.
	Counts standing.Effects
	// Free: taking it makes nothing unavailable.
	Free bool
}

// Has reports whether it counts as that.
func (s *Standing) Has(e standing.Effect) bool { return s.Counts.Has(e) }

// mayChange reports whether the member's change may begin.
func (s *Standing) mayChange() bool { return s.Has(standing.Pending) || s.Has(standing.Held) }

// Member is a node. Its owner may read it, and changes it by the Queue's methods only.
type Member struct {
	Name  string
	Is    Standing
	Group *Group
}

// Members are nodes in the order of their names.
type Members = btree.BTreeG[*Member]

func newMembers() *Members {
	return btree.NewG(8, func(a, b *Member) bool { return a.Name < b.Name })
}

// keep puts the member among others, or takes it out.
func keep(of *Members, m *Member, in bool) {
	if in {
		of.ReplaceOrInsert(m)
	} else {
		of.Delete(m)
	}
}

// Sums counts nodes by effect.
type Sums [standing.EffectCount]int

// Over is how many nodes the end of the change does not wait for.
func (s *Sums) Over() int { return s[standing.Done] + s[standing.Excused] + s[standing.Late] }

// Completed says how far the change to a revision is that is complete.
func (s *Sums) Completed(revision string) string {
	faulty, away := s[standing.Fault], s[standing.Away]
	return words.Completed(revision, s[standing.Done], s[standing.Selected], faulty, away,
		s[standing.Excused]-faulty-away)
}

// Add counts effects once more with sign 1, and takes them off with sign -1.
func (s *Sums) Add(e standing.Effects, sign int) {
	for i := range s {
		if e.Has(standing.Effect(i)) {
			s[i] += sign
		}
	}
}

// Step is the sums of one step, and its nodes that may be changed.
type Step struct {
	Sums Sums
	// Changing are those on which something is under way that has not failed, Awaited those whose images are, Excused
	// those that cannot take the change.
	Changing, Awaited, Excused *Members
	// Free are those that may be changed without asking limits, Asking those that ask.
	Free, Asking *Members
	// waiting are those that ask, by group; open are the lines of groups whose domain is not full, by their first group.
	waiting map[*Group]*waiting
	open    *btree.BTreeG[*line]
}

// waiting is the members of a group that wait in a step. The group stands in the line of one of its domains.
type waiting struct {
	members *Members
	line    *line
}

// line is the groups of a step that stand in line for one domain. When that fills, all of them wait, and none
// needs to be looked at; which of them another domain holds up is found out when it would be its turn.
type line struct {
	domain *Domain
	groups *btree.BTreeG[*Group]
	first  *Group
}

func newStep() *Step {
	return &Step{
		Free: newMembers(), Asking: newMembers(), Changing: newMembers(), Awaited: newMembers(), Excused: newMembers(),
		waiting: map[*Group]*waiting{},
		open:    btree.NewG(8, func(a, b *line) bool { return a.first.key < b.first.key }),
	}
}

// Of is how many nodes count as that.
func (s *Step) Of(e standing.Effect) int32 { return int32(s.Sums[e]) }

// Status is what a rollout's status says of the step, by its name.
func (s *Step) Status(name string) v1alpha1.StepStatus {
	return v1alpha1.StepStatus{
		Name: name, Nodes: s.Of(standing.Selected), Done: s.Of(standing.Done), Failed: s.Of(standing.Failure),
		Unavailable: s.Of(standing.Down), Fetching: s.Of(standing.Fetches), Fetched: s.Of(standing.Fetched),
	}
}

// Over is how many nodes the next step does not wait for.
func (s *Step) Over() int { return s.Sums.Over() + s.Sums[standing.Passed] }

// Changed reports whether all nodes that the next step waits for are changed; they may soak yet.
func (s *Step) Changed() bool { return s.Over()+s.Sums[standing.Soaks] >= s.Sums[standing.Selected] }

// empty reports whether the step has no nodes.
func (s *Step) empty() bool {
	return s.Sums[standing.Selected] == 0 && s.Changing.Len() == 0 && s.Free.Len() == 0 && s.Asking.Len() == 0
}

// First is the first node that asks whose domains let it go. A group that another domain holds up goes to its line.
func (s *Step) First() (*Member, bool) {
	for {
		l, ok := s.open.Min()
		if !ok {
			return nil, false
		}
		g, w := l.first, s.waiting[l.first]
		if !g.holder().Full {
			return w.members.Min()
		}
		s.move(l, func() { l.groups.Delete(g) })
		s.enter(g, w)
	}
}

// HeldUp is a node that waits for its domains, if all do that wait; nil otherwise.
func (s *Step) HeldUp() *Member {
	if _, any := s.First(); any || s.Free.Len() > 0 {
		return nil
	}
	m, _ := s.Asking.Min()
	return m
}

// offer puts the member among those that may be changed, or takes it out.
func (s *Step) offer(m *Member) {
	keep(s.Changing, m, m.Is.Has(standing.Ours) && m.Is.State.Verdict() == standing.Changing)
	keep(s.Awaited, m, m.Is.State == standing.Awaiting && m.Is.Has(standing.Selected))
	keep(s.Excused, m, m.Is.Has(standing.Excused))
	keep(s.Free, m, m.Is.mayChange() && m.Is.Free)
	_, asked := s.Asking.Delete(m)
	switch {
	case m.Is.mayChange() && !m.Is.Free:
		s.Asking.ReplaceOrInsert(m)
		s.wait(m)
	case asked:
		s.leave(m)
	}
}

// wait puts the member among those of its group, and the group in a line.
func (s *Step) wait(m *Member) {
	w := s.waiting[m.Group]
	if w == nil {
		w = &waiting{members: newMembers()}
		s.waiting[m.Group] = w
		s.enter(m.Group, w)
	}
	w.members.ReplaceOrInsert(m)
}

func (s *Step) leave(m *Member) {
	w := s.waiting[m.Group]
	w.members.Delete(m)
	if w.members.Len() == 0 {
		delete(s.waiting, m.Group)
		s.move(w.line, func() { w.line.groups.Delete(m.Group) })
	}
}

// enter puts a group that waits in a line.
func (s *Step) enter(g *Group, w *waiting) {
	d := g.holder()
	w.line = d.lines[s]
	if w.line == nil {
		w.line = &line{domain: d, groups: btree.NewG(8, func(a, b *Group) bool { return a.key < b.key })}
		d.lines[s] = w.line
	}
	s.move(w.line, func() { w.line.groups.ReplaceOrInsert(g) })
}

// move changes a line, and keeps its place among those that are open.
func (s *Step) move(l *line, change func()) {
	if l.first != nil {
		s.open.Delete(l)
	}
	change()
	l.first, _ = l.groups.Min()
	switch {
	case l.first == nil:
		delete(l.domain.lines, s)
	case !l.domain.Full:
		s.open.ReplaceOrInsert(l)
	}
}
