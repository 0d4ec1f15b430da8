package fit

import (
	"container/list"
	"iter"
)

// Change says what of a node became different, as a set of bits.
type Change uint8

// The changes that may let a waiting pod fit.
const (
	NodeAdded Change = 1 << iota
	AllocatableChanged
	LabelsChanged
	// TaintsChanged covers taints and the unschedulable flag.
	TaintsChanged
	// PodRemoved: a pod left the node or stopped using it.
	PodRemoved
	// PodAdded: a pod came to the node, which helps those that want to be near it.
	PodAdded
	// VolumesChanged: there is another volume, or somebody who makes one.
	VolumesChanged
	// DevicesChanged: there are other devices, or some are free again.
	DevicesChanged
)

// Moment is a point in a cluster's events. The zero value is before them all.
type Moment struct {
	change uint64
	// places is how many nodes were deleted by then. A deletion gives another node a new place.
	places uint64
}

// SamePlaces reports whether every node that was there at both moments had the same place in Nodes.
func (m Moment) SamePlaces(other Moment) bool { return m.places == other.places }

// recency keeps the existing nodes in the order of their latest changes.
type recency struct {
	now    Moment
	latest list.List // of *Node, the latest first
}

// touch notes that what a node says to pods may be different now.
func (r *recency) touch(n *Node) {
	if !n.exists() {
		return
	}
	r.now.change++
	n.changed = r.now.change
	if n.recent == nil {
		n.recent = r.latest.PushFront(n)
		return
	}
	r.latest.MoveToFront(n.recent)
}

// leave takes out a node that is deleted.
func (r *recency) leave(n *Node) {
	r.now.places++
	r.latest.Remove(n.recent)
	n.recent = nil
}

// Now is the moment after the latest event.
func (c *Cluster) Now() Moment { return c.now }

// ChangedSince returns the nodes that came or changed after the moment, the latest change first. It costs as much as
// there are such nodes.
func (c *Cluster) ChangedSince(m Moment) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for e := c.latest.Front(); e != nil; e = e.Next() {
			n := e.Value.(*Node)
			if n.changed <= m.change || !yield(n) {
				return
			}
		}
	}
}
