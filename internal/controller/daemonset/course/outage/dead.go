package outage

import (
	"iter"
	"maps"
	"time"
)

// Fall is how a node fell out of order: when, by this process' clock, and what was wrong.
type Fall struct {
	At     time.Time
	Fault  string
	Silent bool
}

// Dead is a node that fell out of order a short while ago and was deleted.
type Dead struct {
	Node
	Fall
	// Blamed: it counts as failed, or cannot, since it fell without having the target.
	Blamed bool
	// Until is how long it counts.
	Until time.Time
}

// Graves are the dead by name: who takes dead nodes away takes no evidence with them.
type Graves map[string]*Dead

// Count is how many of them had the target, how many of these are not blamed yet, and how many others there are.
func (g Graves) Count() (fallen, unblamed, others int) {
	for _, d := range g {
		switch {
		case !d.Fallen:
			others++
		case !d.Blamed:
			unblamed++
			fallen++
		default:
			fallen++
		}
	}
	return fallen, unblamed, others
}

// Forget drops those that count no longer.
func (g Graves) Forget(now time.Time) {
	maps.DeleteFunc(g, func(_ string, d *Dead) bool { return !d.Until.After(now) })
}

// With yields nodes, and the dead that had the target after them.
func (g Graves) With(nodes iter.Seq[Node]) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for n := range nodes {
			if !yield(n) {
				return
			}
		}
		for _, d := range g {
			if d.Fallen && !yield(d.Node) {
				return
			}
		}
	}
}
