package rolloutpolicy

import (
	"slices"
	"time"

	"github.com/everynode/everynode/internal/loop/deadline"
)

// Windows are the times in which changes may begin. No window at all is always.
type Windows []window

// window is a part of some days of the week, in minutes of the day there. A span
// whose end is not after its beginning ends on the next day.
type window struct {
	days     [7]bool // by time.Weekday: the day on which it begins
	from, to int
	zone     *time.Location
}

// span is one occurrence: from begins to before ends.
type span struct{ begins, ends time.Time }

// Open reports whether now is inside a window, and when that changes next; windows
// that touch are one. The zero time means never.
func (ws Windows) Open(now time.Time) (open bool, changes time.Time) {
	if len(ws) == 0 {
		return true, time.Time{}
	}
	var spans []span
	for _, w := range ws {
		spans = append(spans, w.around(now)...)
	}
	slices.SortFunc(spans, func(a, b span) int { return a.begins.Compare(b.begins) })
	ends := now
	for _, s := range spans {
		if s.begins.After(ends) {
			if !open {
				return false, s.begins
			}
			break
		}
		if s.ends.After(ends) {
			open, ends = true, s.ends
		}
	}
	if !open {
		return false, time.Time{}
	}
	return true, ends
}

// around returns the window's occurrences that begin from the day before now to a
// week after it. The clock of the place decides: on the day on which it is put
// forward or back a window is shorter or longer.
func (w window) around(now time.Time) []span {
	year, month, day := now.In(w.zone).Date()
	var out []span
	for d := -1; d <= 7; d++ {
		if !w.days[time.Date(year, month, day+d, 12, 0, 0, 0, w.zone).Weekday()] {
			continue
		}
		end := d
		if w.to <= w.from {
			end++
		}
		s := span{
			begins: time.Date(year, month, day+d, 0, w.from, 0, 0, w.zone),
			ends:   time.Date(year, month, day+end, 0, w.to, 0, 0, w.zone),
		}
		if s.begins.Before(s.ends) {
			out = append(out, s)
		}
	}
	return out
}

// Opening is whether a policy's windows are open, and when that changes, as it was found out last. It is found out
// again after a day: windows are looked for a week ahead, and one that the change to summer time leaves out comes
// later.
type Opening struct {
	policy               *Policy
	open                 bool
	from, changes, again time.Time
}

// Look is as Windows.Open, of the policy's windows. The clock on the wall decides, also after somebody has set it; when
// that changes next is told by the clock that now is of.
func (o *Opening) Look(p *Policy, now time.Time) (open bool, changes time.Time) {
	wall := now.Round(0)
	if o.policy != p || wall.Before(o.from) || !o.again.After(wall) {
		open, changes := p.Windows.Open(wall)
		*o = Opening{p, open, wall, changes, deadline.Sooner(changes, wall.Add(24*time.Hour))}
	}
	if o.changes.IsZero() {
		return o.open, o.changes
	}
	return o.open, now.Add(o.changes.Sub(wall))
}
