package standing

import "cmp"

// Chosen says by whose placement rules a node is to have a daemon: those of the stable
// revision, or what stands in for it, of the target, and of the revision that its own pod has. A node that any of
// them wants belongs to the fleet: what is to leave it, and what is to come to it, are
// changes like others.
type Chosen struct{ Stable, Target, Own bool }

// Any reports whether the node belongs to the fleet.
func (h Chosen) Any() bool { return h.Stable || h.Target || h.Own }

// Choose asks the rules of each revision once; "" is none.
func Choose(stable, target string, d *Daemon, selects func(revision string) bool) (h Chosen) {
	asks := func(revision string) bool { return revision != "" && selects(revision) }
	h.Target = asks(target)
	h.Stable = stable == target && h.Target || stable != target && asks(stable)
	switch has := cmp.Or(d.Revision, d.Ending); has {
	case target:
		h.Own = has != "" && h.Target
	case stable:
		h.Own = h.Stable
	default:
		h.Own = asks(has)
	}
	return h
}
