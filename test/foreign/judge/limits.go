package judge

import (
	"fmt"
	"time"
)

// taken is what we took away and has not come back, by DaemonSet and node.
type taken map[string]map[string]bool

// allowance is what limits goes by.
type allowance struct {
	*book
	open taken
	// most are the limits of a DaemonSet, by the kind of place that they are of.
	most map[string]map[string][]Entry
	// down says since when a node is out of order.
	down map[string]time.Time
}

// limits wants never more nodes of a DaemonSet without a daemon by our making than its policy allows, in any step and
// in any domain: each deletion of an available daemon on a node that is in order counts, unless the test did it, until
// one is available there again or the node breaks. In a domain nodes out of order whose daemon is not available count
// as well. Who was taken before nodes begin to go back does not count on the way back. A limit holds from when it is
// written, and the one before it for as long as edits says.
func limits(all []Entry) (out []Fault) {
	a := &allowance{newBook(), taken{}, map[string]map[string][]Entry{}, map[string]time.Time{}}
	for _, e := range all {
		switch {
		case e.Limit != nil:
			a.limit(e)
		case e.Stored != nil:
			a.leave(e.Stored)
		case e.Rollout != nil:
			said := a.rollouts[e.Rollout.Set]
			if e.Rollout.back() && (len(said) == 0 || !said[len(said)-1].back()) {
				a.open[e.Rollout.Set] = nil
			}
		case e.Node != nil:
			a.node(e)
		case e.Pod != nil:
			out = append(out, a.pod(e)...)
		}
		a.note(e)
	}
	return out
}

func (a *allowance) limit(e Entry) {
	if a.most[e.Limit.Set] == nil {
		a.most[e.Limit.Set] = map[string][]Entry{}
	}
	of := a.most[e.Limit.Set]
	of[e.Limit.Of] = append(of[e.Limit.Of], e)
}

// leave forgets what was taken on nodes that a DaemonSet is not for any more.
func (a *allowance) leave(s *Stored) {
	a.stored[s.Set] = s
	for name := range a.open[s.Set] {
		if n := a.nodes[name]; n != nil && !a.chosen(s.Set, n) {
			delete(a.open[s.Set], name)
		}
	}
}

func (a *allowance) node(e Entry) {
	name := e.Node.Name
	if !e.Gone && e.Node.Ready {
		delete(a.down, name)
		return
	}
	for _, nodes := range a.open {
		delete(nodes, name)
	}
	if _, known := a.down[name]; !known && !e.Gone {
		a.down[name] = e.At
	}
	if e.Gone {
		delete(a.down, name)
	}
}

// pod counts what becomes of one.
func (a *allowance) pod(e Entry) (out []Fault) {
	p := e.Pod
	if p.Available && !p.Going && !e.Gone {
		delete(a.open[p.Set], p.Node)
		return nil
	}
	if !a.takes(e) {
		return nil
	}
	if a.open[p.Set] == nil {
		a.open[p.Set] = map[string]bool{}
	}
	a.open[p.Set][p.Node] = true
	for kind, most := range a.most[p.Set] {
		place, is := a.nodes[p.Node].place(kind)
		limit, bounded := limitAt(most, e.At)
		if !is || !bounded {
			continue
		}
		if have := a.count(p.Set, kind, place, e.At); have > limit {
			out = append(out, Fault{e.At, "limit", fmt.Sprintf("%s loses its daemon of %s: then %d nodes of %s have "+
				"none by our making, or by their own in a domain, and the limit is %d", p.Node, p.Set, have, place, limit)})
		}
	}
	return out
}

// count is how many nodes of a place have no daemon.
func (a *allowance) count(set, kind, place string, at time.Time) (have int) {
	for name := range a.open[set] {
		if n := a.nodes[name]; n != nil && n.is(kind, place) {
			have++
		}
	}
	said := a.rollouts[set]
	if kind != "rack" || len(said) > 0 && said[len(said)-1].back() {
		return have
	}
	for name, since := range a.down {
		n := a.nodes[name]
		out := n != nil && n.is(kind, place) && a.chosen(set, n) && !a.available(set, name)
		if out && !a.open[set][name] && at.Sub(since) > asks {
			have++
		}
	}
	return have
}

func (n *Node) is(kind, place string) bool {
	at, is := n.place(kind)
	return is && at == place
}

// takes reports whether an entry is that an available daemon is taken from a node that is in order, by us. While a
// DaemonSet is not taken over kube-controller-manager changes it as it likes.
func (b *book) takes(e Entry) bool {
	p, was := e.Pod, b.pods[e.Pod.UID]
	if s := b.stored[p.Set]; s != nil && !s.Taken {
		return false
	}
	return was != nil && was.Available && !was.Going && (p.Going || e.Gone) && b.blameless(p)
}

// limitAt is the highest limit that may be followed at a time, and whether there is one.
func limitAt(most []Entry, at time.Time) (limit int, bounded bool) {
	for i, l := range most {
		if i == len(most)-1 || at.Sub(most[i+1].At) < edits {
			limit = max(limit, l.Limit.Max)
			if l.Limit.Max == 0 {
				return 0, false
			}
		}
	}
	return limit, true
}

// blameless reports whether neither a pod's node, nor the test, nor its DaemonSet's placement has it go.
func (b *book) blameless(p *Pod) bool {
	node := b.nodes[p.Node]
	return node != nil && node.Ready && !b.touched[p.Node] && !b.touched[p.UID] && b.chosen(p.Set, node)
}
