package members

import (
	"slices"
	"time"
)

// Patience is how long a server may say nothing before the others take it for dead.
const Patience = 8 * time.Second

// Presence tells which servers live from what each says again and again. It compares
// what they say with what they said before, never their clocks with ours. The zero
// value has seen nobody.
type Presence struct{ seen map[string]sighting }

type sighting struct {
	mark  string
	since time.Time
}

// Look takes the newest mark of each server, and returns the names of those that live,
// in order, and of those that have said nothing for longer than forgotten. One that is
// seen for the first time is given the benefit of the doubt.
func (p *Presence) Look(now time.Time, marks map[string]string, forgotten time.Duration) (living, dead []string) {
	next := make(map[string]sighting, len(marks))
	for name, mark := range marks {
		s, known := p.seen[name]
		if !known || s.mark != mark {
			s = sighting{mark, now}
		}
		next[name] = s
		if silent := now.Sub(s.since); silent <= Patience {
			living = append(living, name)
		} else if silent > forgotten {
			dead = append(dead, name)
		}
	}
	p.seen = next
	slices.Sort(living)
	slices.Sort(dead)
	return living, dead
}
