package queue

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

func domain(key string, most int) rolloutpolicy.Domain {
	return rolloutpolicy.Domain{Key: key, MaxUnavailable: rolloutpolicy.LimitOf(intstr.FromInt(most))}
}

// asks and down are nodes that wait for leave, and that may not be waited for.
var (
	asks = Standing{State: standing.Untouched, Counts: standing.SetOf(standing.Selected, standing.Pending)}
	down = Standing{State: standing.Starting, Counts: standing.SetOf(standing.Selected, standing.Down, standing.Ours)}
)

// The racks of a zone stand in one line, which is closed as a whole when the zone fills.
func TestAFullDomainLeavesItsGroupsAlone(t *testing.T) {
	const racks = 300
	domains := []rolloutpolicy.Domain{domain("zone", 1), domain("rack", 1)}
	q, at := New(), rolloutpolicy.Step{}
	var members []*Member
	for r := range racks {
		m := &Member{Name: fmt.Sprintf("n%03d", r)}
		members = append(members, m)
		q.Join(m, map[string]string{"zone": "z", "rack": fmt.Sprintf("r%03d", r)}, domains)
		q.Count(m, at, asks, domains)
	}
	s := q.Steps[at]
	lines := map[*line]int{}
	for _, w := range s.waiting {
		lines[w.line]++
	}
	if len(lines) != 1 || s.open.Len() != 1 {
		t.Fatalf("%d racks stand in %d lines, %d of them open", len(s.waiting), len(lines), s.open.Len())
	}
	q.Count(members[7], at, down, domains)
	if s.open.Len() != 0 {
		t.Fatalf("%d lines are open, and the zone has room for none", s.open.Len())
	}
	if m, ok := s.First(); ok || s.HeldUp() != members[0] {
		t.Errorf("the first is %v, and held up is %v", m, s.HeldUp())
	}
	for _, w := range s.waiting {
		if lines[w.line] == 0 {
			t.Fatalf("a rack has left the line, which is for %v now", w.line.domain.Place)
		}
	}
	for _, m := range members {
		q.Count(m, at, Standing{}, domains)
		q.Leave(m)
	}
	if len(q.Steps)+len(q.places)+len(q.groups)+q.Blocked.Len() != 0 {
		t.Errorf("nobody is there, and of them is known %+v", q)
	}
}

// An empty value of a label is a place, and no label is none.
func TestAnEmptyValueIsAPlace(t *testing.T) {
	domains := []rolloutpolicy.Domain{domain("zone", 1)}
	q := New()
	with, without := &Member{Name: "a"}, &Member{Name: "b"}
	q.Join(without, nil, domains)
	q.Join(with, map[string]string{"zone": ""}, domains)
	if len(with.Group.Domains) != 1 || len(without.Group.Domains) != 0 {
		t.Errorf("they are in %v and %v", with.Group.Domains, without.Group.Domains)
	}
}

// Whatever becomes of nodes, the sums are those of a look at all of them, and the first node of a step is one that its
// domains let go.
func TestSumsAreThoseOfALookAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		domains := []rolloutpolicy.Domain{
			domain("zone", rapid.IntRange(0, 4).Draw(t, "zone")), domain("rack", rapid.IntRange(0, 2).Draw(t, "rack")),
		}
		q, fleet := New(), map[string]*playing{}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			name := fmt.Sprintf("n%d", rapid.IntRange(0, 11).Draw(t, "node"))
			p := fleet[name]
			if p == nil {
				p = &playing{Member: &Member{Name: name}}
				fleet[name] = p
			}
			if p.Group == nil || rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
				p.move(t, &q, domains)
			}
			if p.Group != nil {
				p.is = anyStanding(t)
				q.Count(p.Member, p.at, p.is, domains)
			}
			compare(t, &q, fleet, domains)
		}
	})
}

// playing is a member, and what the queue was told of it.
type playing struct {
	*Member
	at     rolloutpolicy.Step
	is     Standing
	labels map[string]string
}

// move takes the member out, and mostly puts it elsewhere.
func (p *playing) move(t *rapid.T, q *Queue, domains []rolloutpolicy.Domain) {
	if p.Group != nil {
		p.is = Standing{State: p.is.State}
		q.Count(p.Member, p.at, p.is, domains)
		q.Leave(p.Member)
	}
	if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
		return
	}
	p.labels = map[string]string{}
	for key, most := range map[string]int{"zone": 2, "rack": 4} {
		if v := rapid.IntRange(-1, most).Draw(t, key); v >= 0 {
			p.labels[key] = []string{"", "a", "b", "c", "d"}[v]
		}
	}
	p.at = rolloutpolicy.Step{Wave: rapid.IntRange(0, 2).Draw(t, "step")}
	q.Join(p.Member, p.labels, domains)
}

func anyStanding(t *rapid.T) Standing {
	var e standing.Effects
	for i := range standing.EffectCount {
		e = e.With(i, i != standing.Pending && i != standing.Held && rapid.IntRange(0, 2).Draw(t, "counts") == 0)
	}
	may := rapid.IntRange(0, 3).Draw(t, "may change")
	e = e.With(standing.Pending, may == 1).With(standing.Held, may == 2).With(standing.Selected, true)
	states := []standing.State{standing.Untouched, standing.Starting, standing.Awaiting, standing.Soaked}
	return Standing{State: rapid.SampledFrom(states).Draw(t, "state"), Counts: e, Free: rapid.Bool().Draw(t, "free")}
}

// compare looks at all members.
func compare(t *rapid.T, q *Queue, fleet map[string]*playing, domains []rolloutpolicy.Domain) {
	var totals Sums
	steps, blocked := map[rolloutpolicy.Step][]*playing{}, 0
	for _, p := range fleet {
		if p.Group == nil {
			continue
		}
		totals.Add(p.is.Counts, 1)
		steps[p.at] = append(steps[p.at], p)
		if p.is.Has(standing.Ours) && p.is.State.Verdict() != standing.Changing {
			blocked++
		}
	}
	if q.Totals != totals || q.Blocked.Len() != blocked {
		t.Fatalf("the totals are %v, %d blocked; want %v, %d", q.Totals, q.Blocked.Len(), totals, blocked)
	}
	full := map[Place]bool{}
	for i, d := range domains {
		nodes, down := map[string]int{}, map[string]int{}
		for _, p := range fleet {
			if value, has := p.labels[d.Key]; has && p.Group != nil {
				nodes[value] += one(p.is.Has(standing.Selected))
				down[value] += one(p.is.Has(standing.Down))
			}
		}
		for value, n := range nodes {
			full[Place{i, value}] = down[value] >= d.MaxUnavailable.Of(n)
		}
	}
	if len(full) != len(q.places) {
		t.Fatalf("%d places are known, want %d", len(q.places), len(full))
	}
	for at, s := range q.Steps {
		compareStep(t, s, steps[at], full, domains)
		delete(steps, at)
	}
	for at, members := range steps {
		if slices.ContainsFunc(members, func(p *playing) bool { return p.is.mayChange() }) {
			t.Fatalf("step %v is not known, and %d nodes are in it", at, len(members))
		}
	}
}

func compareStep(
	t *rapid.T, s *Step, members []*playing, full map[Place]bool, domains []rolloutpolicy.Domain,
) {
	var sums Sums
	may, free, asking, awaited := map[string]bool{}, 0, 0, 0
	for _, p := range members {
		sums.Add(p.is.Counts, 1)
		awaited += one(p.is.State == standing.Awaiting)
		free += one(p.is.mayChange() && p.is.Free)
		if !p.is.mayChange() || p.is.Free {
			continue
		}
		asking++
		held := false
		for i, d := range domains {
			value, has := p.labels[d.Key]
			held = held || has && full[Place{i, value}]
		}
		if !held {
			may[p.Name] = true
		}
	}
	if s.Sums != sums || s.Free.Len() != free || s.Asking.Len() != asking || s.Awaited.Len() != awaited {
		t.Fatalf("a step has %v, %d free, %d asking, %d awaited; want %v, %d, %d, %d",
			s.Sums, s.Free.Len(), s.Asking.Len(), s.Awaited.Len(), sums, free, asking, awaited)
	}
	first, any := s.First()
	if any != (len(may) > 0) || any && !may[first.Name] {
		t.Fatalf("the first is %v, and those that may go are %v", first, slices.Sorted(maps.Keys(may)))
	}
	if held := s.HeldUp(); (held != nil) != (len(may) == 0 && free == 0 && asking > 0) {
		t.Fatalf("%v is held up, and %d may go, %d are free, %d ask", held, len(may), free, asking)
	}
}
