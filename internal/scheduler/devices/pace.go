package devices

import (
	"maps"
	"time"
)

const (
	// cheap is what the choice of devices on one node costs at most if its claims are ordinary, also when a selector is
	// compiled for it.
	cheap = 5 * time.Millisecond
	// pauses is how many times as long as a costly choice the pause after it is.
	pauses = 10
)

// pace keeps namespaces whose claims are costly to meet from taking the time of all others. What a choice costs above
// the ordinary is followed by a pause in which nothing is chosen for pods of the namespace.
type pace map[string]time.Time

// spent notes what the choice on one node has cost, which ended now.
func (p pace) spent(namespace string, cost time.Duration, now time.Time) {
	if cost <= cheap {
		return
	}
	maps.DeleteFunc(p, func(_ string, until time.Time) bool { return !until.After(now) })
	from := now
	if until, pausing := p[namespace]; pausing {
		from = until
	}
	p[namespace] = from.Add(pauses * (cost - cheap))
}

// until is when the pause of a namespace ends; zero if there is none now.
func (p pace) until(namespace string, now time.Time) time.Time {
	if until := p[namespace]; until.After(now) {
		return until
	}
	return time.Time{}
}
