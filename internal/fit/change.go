package fit

import "iter"

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
	latest *Node
}

// touch notes that what a node says to pods may be different now.
func (r *recency) touch(n *Node) {
	if !n.exists() {
		return
	}
	r.now.change++
	n.changed = r.now.change
	if r.latest == n {
		return
	}
	r.unlink(n)
	if r.latest != nil {
		r.latest.newer = n
	}
	n.older, r.latest = r.latest, n
}

// leave takes out a node that is deleted.
func (r *recency) leave(n *Node) {
	r.now.places++
	if r.latest == n {
		r.latest = n.older
	}
	r.unlink(n)
}

func (r *recency) unlink(n *Node) {
	if n.newer != nil {
		n.newer.older = n.older
	}
	if n.older != nil {
		n.older.newer = n.newer
	}
	n.newer, n.older = nil, nil
}

// Now is the moment after the latest event.
func (c *Cluster) Now() Moment { return c.now }

// ChangedSince returns the nodes that came or changed after the moment, the latest change first. It costs as much as
// there are such nodes.
func (c *Cluster) ChangedSince(m Moment) iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for n := c.latest; n != nil && n.changed > m.change; n = n.older {
			if !yield(n) {
				return
			}
		}
	}
}
