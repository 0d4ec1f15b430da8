package outage

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Fall is how a node fell out of order: when, by this process' clock, and what was wrong.
type Fall struct {
	At     time.Time
	Fault  string
	Silent bool
}

// Dead is a node that fell out of order a short while ago and was deleted. Fallen tells that it had the target.
type Dead struct {
	Name string
	Node
	Fall
	// Blamed: it counts as failed.
	Blamed bool
	ends   deadline.Timer[*Dead]
}

// Graves are the dead by name: who takes dead nodes away takes no evidence with them. The zero value is empty.
type Graves struct {
	by               map[string]*Dead
	ends             deadline.Timers[*Dead]
	fallen, unblamed int
	// earlier is how many others a status told of, until then.
	earlier int
	until   time.Time
}

// Bury remembers a dead node until then, in place of an earlier one of its name.
func (g *Graves) Bury(d *Dead, until time.Time) {
	if g.by == nil {
		g.by = map[string]*Dead{}
	}
	g.remove(g.by[d.Name])
	g.by[d.Name], d.ends.Owner = d, d
	g.ends.Set(&d.ends, until)
	g.count(d, 1)
}

func (g *Graves) remove(d *Dead) {
	if d == nil {
		return
	}
	g.count(d, -1)
	g.ends.Stop(&d.ends)
	delete(g.by, d.Name)
}

func (g *Graves) count(d *Dead, by int) {
	switch {
	case !d.Fallen:
		return
	case !d.Blamed:
		g.unblamed += by
	}
	g.fallen += by
}

// Count is how many of them had the target, how many of these are not blamed yet, and how many others there are.
func (g *Graves) Count() (fallen, unblamed, others int) {
	return g.fallen, g.unblamed, len(g.by) - g.fallen + g.earlier
}

// Blame has one count as failed.
func (g *Graves) Blame(d *Dead) {
	g.count(d, -1)
	d.Blamed = true
	g.count(d, 1)
}

// Forget drops those that count no longer.
func (g *Graves) Forget(now time.Time) {
	for t := g.ends.Pop(now); t != nil; t = g.ends.Pop(now) {
		g.remove(t.Owner)
	}
	if !g.until.After(now) {
		g.earlier, g.until = 0, time.Time{}
	}
}

// Next is when Forget has something to do next; zero if never.
func (g *Graves) Next() time.Time {
	at, _ := g.ends.Next()
	return deadline.Sooner(at, g.until)
}

// Any reports whether there is anything to tell.
func (g *Graves) Any() bool { return len(g.by)+g.earlier > 0 }

// Fallen yields those that had the target, in no order.
func (g *Graves) Fallen() iter.Seq[*Dead] {
	return func(yield func(*Dead) bool) {
		for _, d := range g.by {
			if d.Fallen && !yield(d) {
				return
			}
		}
	}
}

// With yields nodes, and the dead that had the target after them.
func (g *Graves) With(nodes iter.Seq[Node]) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for n := range nodes {
			if !yield(n) {
				return
			}
		}
		for d := range g.Fallen() {
			if !yield(d.Node) {
				return
			}
		}
	}
}

// named is how many of them a status names.
const named = 200

// Tell writes into a status who of them had the target, and how many others there are.
func (g *Graves) Tell(status *v1alpha1.Failures) {
	for d := range g.Fallen() {
		status.Deleted = append(status.Deleted, v1alpha1.DeletedNode{Name: d.Name, Fault: d.Fault, Silent: d.Silent})
	}
	slices.SortFunc(status.Deleted, func(a, b v1alpha1.DeletedNode) int { return cmp.Compare(a.Name, b.Name) })
	status.Deleted = status.Deleted[:min(len(status.Deleted), named)]
	_, _, others := g.Count()
	status.OthersDeleted = int32(others)
}

// Recall takes over what a status says. Nobody knows by which clock they fell, so they count until then, once more; nor
// of which places they were, so that no place excuses them. Failed tells which of them count as failed.
func (g *Graves) Recall(from *v1alpha1.Failures, now, until time.Time, failed func(name string) bool) {
	for _, d := range from.Deleted {
		g.Bury(&Dead{
			Name: d.Name, Node: Node{Group: &queue.Group{}, Fallen: true, Fell: now, Has: true},
			Fall: Fall{At: now, Fault: d.Fault, Silent: d.Silent}, Blamed: failed(d.Name),
		}, until)
	}
	if from.OthersDeleted > 0 {
		g.earlier, g.until = int(from.OthersDeleted), until
	}
}
