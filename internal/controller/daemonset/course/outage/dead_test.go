package outage

import (
	"slices"
	"testing"
	"time"
)

// The dead count until their time is over, those that had the target as fallen, and are among the nodes for as long.
func TestTheDeadCountForAWhile(t *testing.T) {
	g := Graves{
		"a": {Node: Node{Fallen: true}, Until: now.Add(time.Minute)},
		"b": {Node: Node{Fallen: true}, Blamed: true, Until: now.Add(time.Second)},
		"c": {Blamed: true, Until: now.Add(time.Minute)},
	}
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
	for range (Graves{"a": {Node: Node{Fallen: true}}}).With(none) {
		break
	}
}
