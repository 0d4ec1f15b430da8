// Package startups tells the matrix which DaemonSets NodeStartups list: a listed daemon waits on a node that starts
// until its group is reached, and tolerates the taint of such nodes. It stands before the matrix and adds this to the
// placement rules; of DaemonSets that nobody lists it passes everything on as it is.
package startups

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// rows is the matrix.
type rows = contents.Rows

// Book knows all NodeStartups.
type Book struct {
	rows
	all    map[types.UID]*v1alpha1.NodeStartup
	listed map[types.NamespacedName][]nodestartup.Place
	turns  map[types.NamespacedName]nodestartup.Turn
	// own are the turns by the name of a NodeStartup, set says which one a node follows, and nodes are all.
	own   map[string]map[types.NamespacedName]nodestartup.Turn
	set   nodestartup.Set
	nodes map[string]fact.Node
	// last is what was last told of each DaemonSet, as it came.
	last map[types.UID]fact.DaemonSet
}

// New returns a book that knows of none.
func New(of contents.Rows) *Book {
	return &Book{rows: of, all: map[types.UID]*v1alpha1.NodeStartup{}, last: map[types.UID]fact.DaemonSet{},
		nodes: map[string]fact.Node{}}
}

// Tell takes in a NodeStartup as it is now, or that it is gone. The DaemonSets of which another list is true from now
// on are told to the matrix again.
func (b *Book) Tell(s *v1alpha1.NodeStartup, gone bool) {
	if gone {
		delete(b.all, s.UID)
	} else {
		b.all[s.UID] = s
	}
	var all []*v1alpha1.NodeStartup
	for _, one := range b.all {
		all = append(all, one)
	}
	before := b.listed
	b.listed, b.turns, b.set = nodestartup.Listed(all), nodestartup.Turns(all...), nodestartup.NewSet(all)
	b.own = map[string]map[types.NamespacedName]nodestartup.Turn{}
	for _, one := range all {
		b.own[one.Name] = nodestartup.Turns(one)
	}
	for _, e := range b.last {
		name := types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
		if !slices.Equal(before[name], b.listed[name]) {
			b.rows.Step(b.with(e))
		}
	}
}

// Turn is when a DaemonSet starts on a node: by the NodeStartup that the node follows, and by the first that lists it
// if that one does not; the zero value if none does.
func (b *Book) Turn(namespace, name, node string) nodestartup.Turn {
	of := types.NamespacedName{Namespace: namespace, Name: name}
	if len(b.listed[of]) > 1 {
		if own, is := b.own[b.follows(node)][of]; is {
			return own
		}
	}
	return b.turns[of]
}

// follows names the NodeStartup of a node: that by which it starts, or would.
func (b *Book) follows(node string) string {
	n, known := b.nodes[node]
	if !known {
		return ""
	}
	if gate := nodestartup.TaintOf(n.Taints); gate != nil {
		place, _ := nodestartup.PlaceOf(gate.Value)
		return place.Startup
	}
	if all := b.set.Matching(n.Labels); len(all) > 0 {
		return all[0].Name
	}
	return ""
}

// ListedSets are the DaemonSets that NodeStartups list, as far as they are known, in no order.
func (b *Book) ListedSets() (out []types.UID) {
	if len(b.listed) == 0 {
		return nil
	}
	for uid, e := range b.last {
		if len(b.listed[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}]) > 0 {
			out = append(out, uid)
		}
	}
	return out
}

// Step takes an event for the matrix in, and passes it on.
func (b *Book) Step(e matrix.Event) {
	switch e := e.(type) {
	case fact.DaemonSet:
		b.last[e.UID] = e
		b.rows.Step(b.with(e))
	case fact.DaemonSetGone:
		delete(b.last, types.UID(e))
		b.rows.Step(e)
	case fact.Node:
		b.nodes[e.Name] = e
		b.rows.Step(e)
	case fact.NodeGone:
		delete(b.nodes, string(e))
		b.rows.Step(e)
	default:
		b.rows.Step(e)
	}
}

// with adds to the rules of a DaemonSet where it is listed.
func (b *Book) with(e fact.DaemonSet) fact.DaemonSet {
	starts := b.listed[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}]
	if len(starts) == 0 {
		return e
	}
	e.Placement = e.Placement.Starting(starts)
	if e.Earlier != nil {
		earlier := &placement.Revisions{ByRevision: map[string]*placement.Rules{}}
		for hash, rules := range e.Earlier.ByRevision {
			earlier.ByRevision[hash] = rules.Starting(starts)
		}
		e.Earlier = earlier
	}
	return e
}
