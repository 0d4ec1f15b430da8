package judge

import (
	"fmt"
	"slices"
	"time"
)

// Bound is an ordinary pod that a node was chosen for.
type Bound struct{ Name, Node string }

// gatekeeper is what gates goes by.
type gatekeeper struct {
	*book
	// listed are the DaemonSets of the NodeStartup; nil while there is none.
	listed []string
	// last is when the pod of a DaemonSet on a node was available last, by "SET NODE"; moved when a DaemonSet was
	// stored for other nodes.
	last, moved map[string]time.Time
}

// gates wants each node that joins while the webhook answers to be closed from the write that creates it, to open only
// while the daemons of all DaemonSets that its NodeStartup lists are available there, and to get no ordinary pod
// before. For a while after a DaemonSet is stored for other nodes it may be waited for, or not.
func gates(all []Entry) (out []Fault) {
	g := &gatekeeper{newBook(), nil, map[string]time.Time{}, map[string]time.Time{}}
	for _, e := range all {
		switch {
		case e.Starts != nil:
			g.listed = e.Starts
		case e.Stored != nil:
			if was := g.stored[e.Stored.Set]; was != nil && was.Placement != e.Stored.Placement {
				g.moved[e.Stored.Set] = e.At
			}
		case e.Bound != nil && g.closed[e.Bound.Node] && g.nodes[e.Bound.Node] != nil:
			out = append(out, Fault{e.At, "gate",
				fmt.Sprintf("pod %s is bound to node %s, which is closed", e.Bound.Name, e.Bound.Node)})
		case e.Node != nil && !e.Gone && g.listed != nil:
			out = append(out, g.node(e)...)
		case e.Pod != nil && g.pods[e.Pod.UID] != nil && g.pods[e.Pod.UID].Available:
			g.last[e.Pod.Set+" "+e.Pod.Node] = e.At
		}
		g.note(e)
	}
	return out
}

// node judges a write of one.
func (g *gatekeeper) node(e Entry) (out []Fault) {
	n := e.Node
	was := g.nodes[n.Name]
	switch {
	case was == nil && !n.Closed && g.answering(e.At):
		return []Fault{{e.At, "gate", fmt.Sprintf("node %s joins open", n.Name)}}
	case was == nil || !was.Closed || n.Closed:
		return nil
	}
	for _, set := range g.listed {
		if !g.chosen(set, n) || e.At.Sub(g.moved[set]) <= edits || g.available(set, n.Name) {
			continue
		}
		if e.At.Sub(g.last[set+" "+n.Name]) > asks {
			out = append(out, Fault{e.At, "gate",
				fmt.Sprintf("node %s opens, and its daemon of %s is not available", n.Name, set)})
		}
	}
	return out
}

// available reports whether a DaemonSet's pod on a node is.
func (b *book) available(set, node string) bool {
	for _, p := range b.pods {
		if p.Set == set && p.Node == node && p.Available && !p.Going {
			return true
		}
	}
	return false
}

// shut are the nodes in order that are closed.
func (b *book) shut() (out []string) {
	for name, n := range b.nodes {
		if n.Ready && n.Closed {
			out = append(out, "node "+name+" is closed")
		}
	}
	slices.Sort(out)
	return out
}
