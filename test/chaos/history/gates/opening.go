package gates

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Moment is when somebody saw that the database had come to a revision.
type Moment struct {
	Revision int64
	At       time.Duration
}

// Outage is a time in which nobody was served.
type Outage struct{ From, To time.Duration }

// History is a run in which nodes join.
type History struct {
	Writes  []Write
	Moments []Moment
	Outages []Outage
	// Daemons are those that all nodes wait for, by namespace and name.
	Daemons []string
}

// Opening is what became of the nodes.
type Opening struct {
	// Nodes were created, and Opened of them opened; Bound are ordinary pods with a node.
	Nodes, Opened, Bound int
	// Joining is how long it took from the first node's creation to the last one's, and All to the last opening.
	Joining, All time.Duration
	// Waits are how long nodes stayed closed after their last daemon had become available, in order; Served is what of
	// them passed while there was a server, in order too.
	Waits, Served []time.Duration
	Faults        []Fault
}

// Of100 is the longest of the shortest p in 100 of some waits, which are in order.
func Of100(waits []time.Duration, p int) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	return waits[max(0, (len(waits)*p+99)/100-1)]
}

// gate is a node while it is closed.
type gate struct {
	name string
	// ready are the available pods of its daemons, and complete is the write since which there is one of each, 0 for
	// none.
	ready        map[string]map[types.UID]bool
	complete     int64
	made, closed bool
}

// judge goes through the writes.
type judge struct {
	h    History
	time clock
	out  Opening
	// gates are those of the nodes by their names, of which each is created once, the first at some time.
	gates map[string]*gate
	first time.Duration
}

// Judge judges a run in which each node is created once, and none goes.
func Judge(h History) Opening {
	h.Writes = InOrder(h.Writes)
	j := &judge{h: h, time: newClock(h.Moments), gates: map[string]*gate{}}
	j.out.Faults = Early(h.Writes)
	bound := map[types.UID]bool{}
	for i := range h.Writes {
		switch w := &h.Writes[i]; {
		case w.Node != nil:
			j.node(w)
		case w.Pod.Daemon != "":
			j.daemon(w)
		case w.Pod.Node != "":
			bound[w.Pod.UID] = true
		}
	}
	j.out.Bound = len(bound)
	j.end()
	slices.Sort(j.out.Waits)
	slices.Sort(j.out.Served)
	return j.out
}

func (j *judge) fault(revision int64, format string, args ...any) {
	j.out.Faults = append(j.out.Faults, Fault{Revision: revision, Text: fmt.Sprintf(format, args...)})
}

// of is the gate of a node, also of one whose creation is still to come.
func (j *judge) of(node string) *gate {
	g := j.gates[node]
	if g == nil {
		g = &gate{name: node, ready: map[string]map[types.UID]bool{}}
		for _, d := range j.h.Daemons {
			g.ready[d] = map[types.UID]bool{}
		}
		j.gates[node] = g
	}
	return g
}

func (j *judge) node(w *Write) {
	g := j.of(w.Node.Name)
	switch {
	case w.Gone:
		j.fault(w.Revision, "node %s is gone", g.name)
		g.closed = false
	case !g.made:
		g.made = true
		j.created(w.Revision)
		g.closed = w.Node.Closed
		if !g.closed {
			j.fault(w.Revision, "node %s is created without its gate", g.name)
		}
	case g.closed && !w.Node.Closed:
		g.closed = false
		j.opens(g, w.Revision)
	case !g.closed && w.Node.Closed:
		j.fault(w.Revision, "node %s is closed again", g.name)
	}
}

func (j *judge) created(revision int64) {
	at := j.time.of(revision)
	if j.out.Nodes == 0 {
		j.first = at
	}
	j.out.Nodes++
	j.out.Joining = at - j.first
}

// opens takes note of how long that took.
func (j *judge) opens(g *gate, at int64) {
	j.out.Opened++
	j.out.All = j.time.of(at) - j.first
	if g.complete == 0 {
		j.fault(at, "node %s opens, and %s", g.name, j.missing(g))
		return
	}
	from, to := j.time.of(g.complete), j.time.of(at)
	j.out.Waits = append(j.out.Waits, to-from)
	j.out.Served = append(j.out.Served, j.served(from, to))
}

// missing names a daemon that is not available.
func (j *judge) missing(g *gate) string {
	for _, d := range j.h.Daemons {
		if len(g.ready[d]) == 0 {
			return d + " is not available there"
		}
	}
	return "nobody knows why"
}

// served is what of a time passed while there was a server.
func (j *judge) served(from, to time.Duration) time.Duration {
	out := to - from
	for _, o := range j.h.Outages {
		out -= max(0, min(to, o.To)-max(from, o.From))
	}
	return out
}

func (j *judge) daemon(w *Write) {
	if w.Pod.Node == "" {
		return
	}
	g := j.of(w.Pod.Node)
	pods := g.ready[w.Pod.Daemon]
	if pods == nil {
		return // nobody waits for it
	}
	if w.Pod.Ready && !w.Gone {
		pods[w.Pod.UID] = true
	} else {
		delete(pods, w.Pod.UID)
	}
	for _, d := range j.h.Daemons {
		if len(g.ready[d]) == 0 {
			g.complete = 0
			return
		}
	}
	if g.complete == 0 {
		g.complete = w.Revision
	}
}

// end finds the nodes that stayed closed.
func (j *judge) end() {
	names := make([]string, 0, len(j.gates))
	for name, g := range j.gates {
		if g.closed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		g := j.gates[name]
		if g.complete > 0 {
			j.fault(g.complete, "node %s stays closed, and all its daemons are available", name)
		} else {
			j.fault(0, "node %s stays closed, and %s", name, j.missing(g))
		}
	}
}

// clock says when a revision was written: not later than when the first saw it, or any that came after.
type clock struct{ moments []Moment }

func newClock(moments []Moment) clock {
	sorted := slices.Clone(moments)
	slices.SortFunc(sorted, func(a, b Moment) int { return cmp.Compare(a.Revision, b.Revision) })
	first := time.Duration(math.MaxInt64)
	for i := len(sorted) - 1; i >= 0; i-- {
		first = min(first, sorted[i].At)
		sorted[i].At = first
	}
	return clock{sorted}
}

// of is the time of a revision; that of the last moment for one that nobody saw.
func (c clock) of(revision int64) time.Duration {
	at, _ := slices.BinarySearchFunc(c.moments, revision, func(m Moment, r int64) int {
		return cmp.Compare(m.Revision, r)
	})
	if at == len(c.moments) {
		at--
	}
	if at < 0 {
		return 0
	}
	return c.moments[at].At
}
