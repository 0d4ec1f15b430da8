package standing

import (
	"slices"
	"time"
)

// Absentee is a node that was deleted while it was without an available daemon by our doing. Who repairs a node may
// delete its object and make it again: until a daemon is available there, that still uses up the limit.
type Absentee struct {
	// Revision is that of the pod that it had, or was to get.
	Name, Revision string
	Until          time.Time
}

// So long, and so many, absentees are remembered; the oldest are forgotten first. A node that is gone for good
// uses up nothing.
const (
	Absence       = time.Hour
	KeptAbsentees = 1000
)

// Absentees are those that are remembered, the oldest first.
type Absentees []Absentee

// Add remembers one that goes now.
func (a *Absentees) Add(name, revision string, now time.Time) {
	*a = append(*a, Absentee{name, revision, now.Add(Absence)})
	a.forget(now)
}

// Take forgets the one of that name, and returns its revision if there was one.
func (a *Absentees) Take(name string, now time.Time) (revision string, was bool) {
	a.forget(now)
	i := slices.IndexFunc(*a, func(o Absentee) bool { return o.Name == name })
	if i < 0 {
		return "", false
	}
	revision = (*a)[i].Revision
	*a = slices.Delete(*a, i, i+1)
	return revision, true
}

// forget drops those that are away for too long, or too many.
func (a *Absentees) forget(now time.Time) {
	old := max(len(*a)-KeptAbsentees, 0)
	for old < len(*a) && !(*a)[old].Until.After(now) {
		old++
	}
	*a = slices.Delete(*a, 0, old)
}
