package outage

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// grave is of a node that had the target, or not, and counts as failed, or not.
func grave(name string, fallen, blamed bool) *Dead {
	return &Dead{Name: name, Node: Node{Fallen: fallen}, Blamed: blamed}
}

// The dead count until their time is over, those that had the target as fallen, and are among the nodes for as long.
func TestTheDeadCountForAWhile(t *testing.T) {
	var g Graves
	if g.Any() || !g.Next().IsZero() {
		t.Error("there is something of no graves")
	}
	g.Bury(grave("a", false, false), now.Add(time.Hour)) // another of its name follows
	g.Bury(grave("a", true, false), now.Add(time.Minute))
	g.Bury(grave("b", true, true), now.Add(time.Second))
	g.Bury(grave("c", false, true), now.Add(time.Minute))
	none := slices.Values([]Node{{Has: true}})
	for _, c := range []struct {
		after                              time.Duration
		fallen, unblamed, others, together int
	}{{0, 2, 1, 1, 3}, {time.Second, 1, 1, 1, 2}, {time.Minute, 0, 0, 0, 1}} {
		g.Forget(now.Add(c.after))
		fallen, unblamed, others := g.Count()
		together := len(slices.Collect(g.With(none)))
		if fallen != c.fallen || unblamed != c.unblamed || others != c.others || together != c.together {
			t.Errorf("after %s: %d fallen, %d unblamed, %d others, %d nodes; want %+v",
				c.after, fallen, unblamed, others, together, c)
		}
	}
	if g.Any() || !g.Next().IsZero() {
		t.Error("there is something of graves that count no longer")
	}
	g.Bury(grave("a", true, false), now.Add(time.Minute))
	for range g.With(none) {
		break
	}
	for d := range g.Fallen() {
		g.Blame(d)
		g.Blame(d)
	}
	if fallen, unblamed, others := g.Count(); fallen != 1 || unblamed != 0 || others != 0 {
		t.Errorf("blamed: %d fallen, %d unblamed, %d others; want 1, 0, 0", fallen, unblamed, others)
	}
}

// A status names up to 200 that had the target and counts the others. The next process goes on with that, for a while.
func TestTheDeadAreStored(t *testing.T) {
	var g, next Graves
	for i := range 450 {
		g.Bury(grave(fmt.Sprintf("n%03d", i), i%2 == 0, false), now.Add(time.Minute))
	}
	var stored v1alpha1.Failures
	g.Tell(&stored)
	if n := len(stored.Deleted); n != named || stored.Deleted[1].Name != "n002" || stored.OthersDeleted != 225 {
		t.Errorf("%d are named, the second is %s, and there are %d others; want %d, n002 and 225",
			n, stored.Deleted[1].Name, stored.OthersDeleted, named)
	}
	next.Recall(&stored, now, now.Add(time.Minute), func(name string) bool { return name == "n004" })
	var again v1alpha1.Failures
	next.Tell(&again)
	if !slices.Equal(again.Deleted, stored.Deleted) || again.OthersDeleted != stored.OthersDeleted {
		t.Errorf("the next process tells of %d and %d others", len(again.Deleted), again.OthersDeleted)
	}
	if fallen, unblamed, others := next.Count(); fallen != named || unblamed != named-1 || others != 225 {
		t.Errorf("%d fallen, %d unblamed, %d others; want %d, %d and 225", fallen, unblamed, others, named, named-1)
	}
	for d := range next.Fallen() {
		if d.In(nil) || !d.Has {
			t.Errorf("%s: %+v", d.Name, d)
		}
	}
	if at := next.Next(); !at.Equal(now.Add(time.Minute)) {
		t.Errorf("the next time is %s", at)
	}
	if next.Forget(now.Add(time.Minute)); next.Any() {
		t.Error("they count for ever")
	}
}
