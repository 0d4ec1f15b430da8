package judge

import (
	"fmt"
	"time"
)

// ruleless reports whether no policy leads a DaemonSet's changes: it is gone.
func (b *book) ruleless(set string) bool { return !b.policyGone[set].IsZero() }

// held reports whether a DaemonSet's change must stand still, because its policy is gone and nobody has let it go on.
func (b *book) held(set string, at time.Time) bool {
	s, since := b.stored[set], b.policyGone[set]
	if s == nil || !s.Taken || since.IsZero() || at.Sub(since) < edits || b.freed[set] {
		return false
	}
	for _, said := range b.lately(set, at) {
		if said.Stable == "" || said.Stable == said.Target {
			return false
		}
	}
	return len(b.rollouts[set]) > 0
}

// standstill wants nothing to go on whose policy has gone in the middle: no node loses its daemon for the target, and
// who lost it gets the stable revision.
func standstill(all []Entry) (out []Fault) {
	b := newBook()
	for _, e := range all {
		if p := e.Pod; p != nil && b.held(p.Set, e.At) {
			said := b.rollouts[p.Set]
			last := said[len(said)-1]
			is := p.Revision
			if !last.contents() {
				is = template(is)
			}
			switch {
			case !e.Gone && b.pods[p.UID] == nil && b.answering(e.At) && is != last.Stable:
				out = append(out, Fault{e.At, "policy", fmt.Sprintf("node %s gets %s of %s, whose policy is gone, "+
					"and stable is %s", p.Node, p.Revision, p.Set, last.Stable)})
			case b.takes(e) && is == last.Stable && !last.back():
				out = append(out, Fault{e.At, "policy", fmt.Sprintf("node %s loses %s of %s, whose policy is gone",
					p.Node, p.Revision, p.Set)})
			}
		}
		b.note(e)
	}
	return out
}

// placements wants no DaemonSet that is taken over to be stored for other nodes, unless somebody has approved that.
func placements(all []Entry) (out []Fault) {
	b, approved := newBook(), map[Stored]bool{}
	for _, e := range all {
		if e.Approves != nil {
			approved[Stored{Set: e.Approves.Set, Placement: e.Approves.Placement}] = true
		}
		if s := e.Stored; s != nil && !e.Gone {
			was, may := b.stored[s.Set], approved[Stored{Set: s.Set, Placement: s.Placement}]
			if was != nil && was.Taken && was.Placement != s.Placement && !may {
				out = append(out, Fault{e.At, "placement", fmt.Sprintf("%s is stored for nodes with %q, and was for %q",
					s.Set, s.Placement, was.Placement)})
			}
		}
		b.note(e)
	}
	return out
}
