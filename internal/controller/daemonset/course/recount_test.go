package course

import (
	"maps"

	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// recount compares everything that is kept running with what follows from the facts.
func recount(t *rapid.T, c *Course) {
	var all queue.Sums
	steps, places := map[rolloutpolicy.Step]*queue.Sums{}, map[queue.Place]*queue.Domain{}
	counts := map[standing.Verdict]int32{}
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
			t.Fatalf("%s is known as %+v\nand would be judged %+v", n.Name, was, now)
		}
		if b := n.change.begun; b != nil && *b != "" && n.daemon.Revision == *b && c.target(n) == *b &&
			!c.leaves(n, *b) {
			t.Fatalf("the change of %s was let begin, and it has %s, which it is to have", n.Name, *b)
		}
		counts[now.State.Verdict()]++
		all.Add(now.Counts, 1)
		if steps[n.step] == nil {
			steps[n.step] = &queue.Sums{}
		}
		steps[n.step].Add(now.Counts, 1)
		for i, d := range c.domains() {
			value, has := n.fact.labels()[d.Key]
			if !has {
				continue
			}
			p := queue.Place{Domain: i, Value: value}
			if places[p] == nil {
				places[p] = &queue.Domain{Place: p}
			}
			places[p].Nodes += one(now.Has(standing.Selected))
			places[p].Down += one(now.Has(standing.Down))
			places[p].Staying += one(now.Has(standing.Stays))
		}
		s := c.queue.Steps[n.step]
		if n.Is != n.view.Standing {
			t.Fatalf("%s counts as %+v and stands in the queue as %+v", n.Name, n.view.Standing, n.Is)
		}
		change := now.Has(standing.Pending) || now.Has(standing.Held)
		if change && (now.Free != s.Free.Has(&n.Member) || now.Free == s.Asking.Has(&n.Member)) {
			t.Fatalf("%s may be changed (free %v) and is not where it is looked for", n.Name, now.Free)
		}
		blocked := now.Has(standing.Ours) && now.State.Verdict() != standing.Changing
		if blocked != c.queue.Blocked.Has(&n.Member) {
			t.Fatalf("%s blocks: %v, and is known to: %v", n.Name, blocked, !blocked)
		}
		if s != nil && s.Excused.Has(&n.Member) != now.Has(standing.Excused) {
			t.Fatalf("%s is excused: %v, and is known not to be", n.Name, now.Has(standing.Excused))
		}
		if c.fleet == nil {
			continue
		}
		if step, has := c.fleet.Step(n.Name); has != now.Has(standing.Selected) || has && step != n.step {
			t.Fatalf("%s is in step %v, want %v", n.Name, n.step, step)
		}
	}
	if all != c.queue.Totals {
		t.Fatalf("totals %+v, want %+v", c.queue.Totals, all)
	}
	for at, want := range steps {
		have := c.queue.Steps[at]
		if have == nil && want[standing.Selected] == 0 {
			continue
		}
		if want[standing.Selected] > 0 && have.Sums != *want {
			t.Fatalf("step %v is %+v, want %+v", at, have.Sums, want)
		}
	}
	for _, n := range c.nodes {
		for _, have := range n.Group.Domains {
			want := places[have.Place]
			if have.Nodes != want.Nodes || have.Down != want.Down || have.Staying != want.Staying {
				t.Fatalf("domain %v is %+v, want %+v", have.Place, have, want)
			}
		}
	}
	if have := c.queue.Places(); len(places) != have {
		t.Fatalf("%d domains, want %d", have, len(places))
	}
	maps.DeleteFunc(c.counts, func(_ standing.Verdict, n int32) bool { return n == 0 })
	if !maps.Equal(counts, c.counts) {
		t.Fatalf("verdicts %v, want %v", c.counts, counts)
	}
}
