package judge

import (
	"fmt"
	"time"
)

// looks is how long the metric may say what was.
const looks = 15 * time.Second

// alarms wants no pod to be counted as wrong that was made while the webhook answered.
func alarms(all []Entry) (out []Fault) {
	b, unheard, gone := newBook(), map[string]*Pod{}, map[string]time.Time{}
	for _, e := range all {
		if p := e.Pod; p != nil {
			if b.made[p.UID].IsZero() && !b.answering(e.At) {
				unheard[p.UID] = p
			}
			if e.Gone {
				gone[p.UID] = e.At
			}
		}
		if c := e.Counted; c != nil && c.N > 0 {
			may := 0
			for uid, p := range unheard {
				if since, is := gone[uid]; p.Set == c.Set && (!is || e.At.Sub(since) < looks) {
					may++
				}
			}
			if c.N > may {
				out = append(out, Fault{e.At, "alarm", fmt.Sprintf("%d pods of %s are said to be wrong, and %d were made "+
					"while nobody answered", c.N, c.Set, may)})
			}
		}
		b.note(e)
	}
	return out
}
