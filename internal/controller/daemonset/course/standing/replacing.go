package standing

import (
	"maps"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Replacing are the nodes without the daemon that a change took away, as far as no pod says so yet. The zero value has
// none.
type Replacing struct {
	was     map[string]Before
	earlier map[string]bool
}

// Note takes in how a node stands. Was is what the daemon was like that the change under way took there, "" if it took
// none. Earlier tells that a change took it before the direction turned towards the stable revision.
func (r *Replacing) Note(node string, was Before, earlier bool) {
	if r.was == nil {
		r.was, r.earlier = map[string]Before{}, map[string]bool{}
	}
	r.Drop(node)
	if was != "" {
		r.was[node] = was
	}
	if earlier {
		r.earlier[node] = true
	}
}

// Drop forgets a node.
func (r *Replacing) Drop(node string) {
	delete(r.was, node)
	delete(r.earlier, node)
}

// Any reports whether the change under way took a daemon somewhere.
func (r *Replacing) Any() bool { return len(r.was) > 0 }

// Tell names the nodes, and those that are away, in a status: at most so many of each change; nil if there are none.
func (r *Replacing) Tell(away Absentees, now time.Time, most int) *v1alpha1.Replacing {
	if len(r.was)+len(away)+len(r.earlier) == 0 {
		return nil
	}
	out := &v1alpha1.Replacing{}
	named := slices.Sorted(maps.Keys(r.was))
	for _, n := range named[:min(len(named), most)] {
		if r.was[n] == WasAvailable {
			out.Available = append(out.Available, n)
		} else {
			out.Unavailable = append(out.Unavailable, n)
		}
	}
	for _, a := range away {
		if len(out.Available)+len(out.Unavailable) < most && a.Until.After(now) {
			out.Available = append(out.Available, a.Name)
		}
	}
	earlier := slices.Sorted(maps.Keys(r.earlier))
	out.Earlier = earlier[:min(len(earlier), most)]
	return out
}

// Replaced is what daemons were like that the change under way took, by node, as a status says it.
func Replaced(s *v1alpha1.Replacing) map[string]Before {
	out := map[string]Before{}
	if s != nil {
		for _, n := range s.Available {
			out[n] = WasAvailable
		}
		for _, n := range s.Unavailable {
			out[n] = WasNotAvailable
		}
	}
	return out
}
