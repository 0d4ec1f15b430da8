package course

import (
	"maps"

	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// recount compares everything that is kept running with what follows from the facts.
func recount(t *rapid.T, c *Course) {
	var all sums
	steps, places, counts := map[rolloutpolicy.Step]*sums{}, map[place]*domain{}, map[standing.Verdict]int32{}
	aimed := c.aim
	c.takeAim()
	if aimed != c.aim {
		t.Fatalf("the course takes aim at %+v, want %+v", aimed, c.aim)
	}
	for _, n := range c.nodes {
		refetch(t, c, n)
		now := c.judge(n)
		was := n.view
		now.reason, was.reason = "", ""
		now.since = was.since
		if now != was {
			t.Fatalf("%s is known as %+v\nand would be judged %+v", n.name, was, now)
		}
		if b := n.change.begun; b != nil && *b != "" && n.daemon.Revision == *b && c.target(n) == *b &&
			!c.leaves(n, *b) {
			t.Fatalf("the change of %s was let begin, and it has %s, which it is to have", n.name, *b)
		}
		counts[now.state.Verdict()]++
		all.add(now.counts, 1)
		if steps[n.step] == nil {
			steps[n.step] = &sums{}
		}
		steps[n.step].add(now.counts, 1)
		for i, d := range c.domains() {
			value, has := n.fact.labels()[d.Key]
			if !has {
				continue
			}
			p := place{i, value}
			if places[p] == nil {
				places[p] = &domain{place: p}
			}
			places[p].nodes += one(now.has(standing.Selected))
			places[p].down += one(now.has(standing.Down))
			places[p].staying += one(now.has(standing.Stays))
		}
		s := c.steps[n.step]
		change := now.has(standing.Pending) || now.has(standing.Held)
		var w *waiting
		if change {
			w = s.waiting[n.group]
		}
		if change && (now.free != s.free.Has(n) || now.free == (w != nil && w.nodes.Has(n) && s.asking.Has(n))) {
			t.Fatalf("%s may be changed (free %v) and is not where it is looked for", n.name, now.free)
		} else if change && !now.free && (!w.line.groups.Has(n.group) || s.open.Has(w.line) == w.line.domain.full) {
			t.Fatalf("the group of %s is in no line, or a line of a full domain is open", n.name)
		}
		if blocked := now.has(standing.Ours) && now.state.Verdict() != standing.Changing; blocked != c.blocked.Has(n) {
			t.Fatalf("%s blocks: %v, and is known to: %v", n.name, blocked, c.blocked.Has(n))
		}
		if s != nil && s.excused.Has(n) != now.has(standing.Excused) {
			t.Fatalf("%s is excused: %v, and is known to be: %v", n.name, now.has(standing.Excused), s.excused.Has(n))
		}
		if c.fleet == nil {
			continue
		}
		if step, has := c.fleet.Step(n.name); has != now.has(standing.Selected) || has && step != n.step {
			t.Fatalf("%s is in step %v, want %v", n.name, n.step, step)
		}
	}
	if named := c.named; named != "" {
		c.named = ""
		if c.failing3() != named {
			t.Fatalf("the target is said to fail on %q, and fails on %q", named, c.failing3())
		}
	}
	if all != c.totals {
		t.Fatalf("totals %+v, want %+v", c.totals, all)
	}
	for at, want := range steps {
		have := c.steps[at]
		if have == nil && want[standing.Selected] == 0 {
			continue
		}
		if first, _ := have.first(); first != firstOf(have) {
			t.Fatalf("the first of step %v is %v, want %v", at, first, firstOf(have))
		}
		if want[standing.Selected] > 0 && have.sums != *want {
			t.Fatalf("step %v is %+v, want %+v", at, have.sums, want)
		}
	}
	for p, want := range places {
		have := c.places[p]
		if have.nodes != want.nodes || have.down != want.down || have.staying != want.staying {
			t.Fatalf("domain %v is %+v, want %+v", p, have, want)
		}
	}
	if len(places) != len(c.places) {
		t.Fatalf("%d domains, want %d", len(c.places), len(places))
	}
	maps.DeleteFunc(c.counts, func(_ standing.Verdict, n int32) bool { return n == 0 })
	if !maps.Equal(counts, c.counts) {
		t.Fatalf("verdicts %v, want %v", c.counts, counts)
	}
}

// firstOf is the first node of a step whose domains let it go, by a look at all.
func firstOf(s *step) (first *node) {
	for g, w := range s.waiting {
		if !g.holder().full && (first == nil || g.key < first.group.key) {
			first, _ = w.nodes.Min()
		}
	}
	return first
}
