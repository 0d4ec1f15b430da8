// Package lately says what the objects that people write held in the time in which a decision was made; pure.
package lately

import (
	"slices"

	"github.com/everynode/everynode/test/chaos/history/revision"
)

// Version is what an object held from a revision on.
type Version struct {
	From  int64
	Value string
}

// Life is one object, from its creation to its end at revision Gone; 0 for none.
type Life struct {
	Of       revision.Ref
	Versions []Version
	Gone     int64
}

// Span is from the earliest revision that a controller can have known to the one at which it did something. Targets
// are the contents that a rollout was for.
type Span struct {
	Low, High int64
	Targets   []revision.Held
}

// Had reports whether each object of a content held that of late: since it last held what the rollout's target has. The
// kinds are watched each by itself.
func (s *Span) Had(all []Life, held revision.Held) bool {
	for ref, value := range held {
		if !slices.Contains(s.values(all, ref), value) {
			return false
		}
	}
	return true
}

func (s *Span) values(all []Life, ref revision.Ref) (values []string) {
	var targets []string
	for _, t := range s.Targets {
		targets = append(targets, t[ref])
	}
	for _, l := range all {
		if l.Of != ref {
			continue
		}
		if l.Gone != 0 && l.Gone <= s.High {
			values = append(values, revision.Gone)
		}
		for _, v := range slices.Backward(l.Versions) {
			if v.From > s.High {
				continue
			}
			values = append(values, v.Value)
			if v.From <= s.Low && slices.Contains(targets, v.Value) {
				break
			}
		}
	}
	return values
}
