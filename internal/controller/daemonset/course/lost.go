package course

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/deadline"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// lost are places, such as racks without power, that explain why nodes fell out of order
// soon after their change: there many more did than of the nodes elsewhere that have had
// the target for as long. A revision that harms its nodes does so everywhere.
type lost struct {
	domains []*queue.Domain
	// down of the fallen nodes and given of those with the target are in one of them.
	down, given int

	// It was found out then, of so many fallen nodes, for these.
	at     time.Time
	of     int
	target string
	policy *rolloutpolicy.Policy
	// until is how long nothing is said: the nodes of a place are heard of one after another.
	// again is when it is to be found out next, if somebody waits for that.
	until, again time.Time
}

// hearing is how long it takes until it is known of all nodes of a place that they are silent.
const hearing = time.Minute

// fewTimes is how many nodes must be missing among those elsewhere to tell a place from the
// target, times the policy's least number of failures.
const fewTimes = 3

// mostHits is how many places are looked at, and how many may explain something: each costs a look at all nodes, and a
// place that explains something is among those with the most.
const mostHits = 8

// lostPlaces finds them; nil if it is too early. It looks at every node, so a fleet that
// falls silent is looked at once a second, or when an eighth more has fallen.
func (c *Course) lostPlaces() *lost {
	l, fallen := &c.recent.lost, len(c.recent.changed)
	if l.target == c.state.target && l.policy == c.policy && c.now.Sub(l.at) < time.Second {
		if fallen > l.of && fallen-l.of < l.of/8 {
			l.again = l.at.Add(time.Second)
			return nil
		}
		if fallen == l.of {
			return l.sure(c.now)
		}
	}
	*l = lost{at: c.now, of: fallen, target: c.state.target, policy: c.policy}
	for range min(c.queue.Places(), mostHits) {
		if !c.lostPlace(l) {
			break
		}
	}
	return l.sure(c.now)
}

// sure is the answer, nil while more may be heard.
func (l *lost) sure(now time.Time) *lost {
	if l.until.After(now) {
		l.again = l.until
		return nil
	}
	return l
}

// hit is a place where nodes fell after their change.
type hit struct {
	domain *queue.Domain
	down   int
	// first is when the first one fell, latest when the last of them was given the target.
	first, latest time.Time
}

// hits are the places where nodes fell that are in no place which is known to be lost, those
// with the most first, and only so many.
func (c *Course) hits(l *lost) []*hit {
	at := map[*queue.Domain]*hit{}
	for n := range c.recent.changed {
		if l.has(n) {
			continue
		}
		for _, d := range n.Group.Domains {
			h := at[d]
			if h == nil {
				h = &hit{domain: d, first: n.fell, latest: n.daemon.Bound}
				at[d] = h
			}
			h.down++
			if n.daemon.Bound.After(h.latest) {
				h.latest = n.daemon.Bound
			}
			h.first = deadline.Sooner(h.first, n.fell)
		}
	}
	all := slices.SortedFunc(maps.Values(at), func(a, b *hit) int {
		return cmp.Or(b.down-a.down, a.domain.Place.Domain-b.domain.Place.Domain,
			strings.Compare(a.domain.Place.Value, b.domain.Place.Value))
	})
	return all[:min(len(all), mostHits)]
}

// lostPlace adds one more place; false if there is none. Where nearly all that fell are in one
// place, and it is not clear yet, others of it may be heard of.
func (c *Course) lostPlace(l *lost) bool {
	least := c.policy.Failure.Min
	for _, h := range c.hits(l) {
		if h.down < 2 {
			return false
		}
		given, peers, peersDown := c.peers(l, h.domain, h.latest)
		if h.down*peers >= fewTimes*least*given && h.down*peers > 3*peersDown*given {
			l.domains, l.down, l.given = append(l.domains, h.domain), l.down+h.down, l.given+given
			return true
		}
		if l.of-l.down-h.down < least {
			l.until = h.first.Add(hearing)
		}
	}
	return false
}

// peers counts the nodes of a place that were given the target, and those elsewhere that
// have had it at least since then, and how many of these fell.
func (c *Course) peers(l *lost, d *queue.Domain, since time.Time) (in, peers, down int) {
	for _, n := range c.nodes {
		switch {
		case !n.view.Has(standing.Given) || l.has(n):
		case slices.Contains(n.Group.Domains, d):
			in++
		case n.daemon.Revision == c.state.target && !n.daemon.Bound.After(since):
			peers++
			down += one(n.lately == soonAfter)
		}
	}
	return in, peers, down
}

func (l *lost) has(n *node) bool { return n.Group.In(l.domains) }
