// Package outage finds the places, such as racks without power, that explain why nodes fell out of order soon after
// their change: there many more did than of the nodes elsewhere that have had the target for as long. A revision that
// harms its nodes does so everywhere. It is pure.
package outage

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Node is one that was given the target.
type Node struct {
	*queue.Group
	// Fallen: it fell out of order soon after its change, then.
	Fallen bool
	Fell   time.Time
	// Bound is when its pod was bound; Has tells that this is one of the target.
	Bound time.Time
	Has   bool
}

// Input is what the places follow from.
type Input struct {
	Now    time.Time
	Target string
	Policy *rolloutpolicy.Policy
	// Places is how many the fleet has.
	Places int
	// Fallen are the nodes that fell, of which there are Count; Given all that were given the target.
	Count         int
	Fallen, Given iter.Seq[Node]
}

// Places are those that are lost.
type Places struct {
	domains []*queue.Domain
	// Down of the fallen nodes and Given of those with the target are in one of them.
	Down, Given int
	// Again is when it is to be found out next, if somebody waits for that.
	Again time.Time

	// It was found out then, of so many fallen nodes, for these.
	at     time.Time
	of     int
	target string
	policy *rolloutpolicy.Policy
	// until is how long nothing is said: the nodes of a place are heard of one after another.
	until time.Time
}

// hearing is how long it takes until it is known of all nodes of a place that they are silent.
const hearing = time.Minute

// fewTimes is how many nodes must be missing among those elsewhere to tell a place from the
// target, times the policy's least number of failures.
const fewTimes = 3

// mostHits is how many places are looked at, and how many may explain something: each costs a look at all nodes, and a
// place that explains something is among those with the most.
const mostHits = 8

// Find reports whether it is known which places are lost. It looks at every node, so a fleet that falls silent is
// looked at once a second, or when an eighth more has fallen.
func (l *Places) Find(in *Input) bool {
	if l.target == in.Target && l.policy == in.Policy && in.Now.Sub(l.at) < time.Second {
		if in.Count > l.of && in.Count-l.of < l.of/8 {
			l.Again = l.at.Add(time.Second)
			return false
		}
		if in.Count == l.of {
			return l.sure(in.Now)
		}
	}
	*l = Places{at: in.Now, of: in.Count, target: in.Target, policy: in.Policy}
	for range min(in.Places, mostHits) {
		if !l.add(in) {
			break
		}
	}
	return l.sure(in.Now)
}

// Tick forgets that something is to be found out at a time that has come.
func (l *Places) Tick(now time.Time) {
	if !l.Again.After(now) {
		l.Again = time.Time{}
	}
}

// Has reports whether the group is in one of the places.
func (l *Places) Has(g *queue.Group) bool { return g.In(l.domains) }

// sure reports whether no more will be heard.
func (l *Places) sure(now time.Time) bool {
	if l.until.After(now) {
		l.Again = l.until
		return false
	}
	return true
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
func (l *Places) hits(fallen iter.Seq[Node]) []*hit {
	at := map[*queue.Domain]*hit{}
	for n := range fallen {
		if l.Has(n.Group) {
			continue
		}
		for _, d := range n.Domains {
			h := at[d]
			if h == nil {
				h = &hit{domain: d, first: n.Fell, latest: n.Bound}
				at[d] = h
			}
			h.down++
			h.first, h.latest = deadline.Sooner(h.first, n.Fell), deadline.Later(h.latest, n.Bound)
		}
	}
	all := slices.SortedFunc(maps.Values(at), func(a, b *hit) int {
		return cmp.Or(b.down-a.down, a.domain.Place.Domain-b.domain.Place.Domain,
			strings.Compare(a.domain.Place.Value, b.domain.Place.Value))
	})
	return all[:min(len(all), mostHits)]
}

// add adds one more place; false if there is none. Where nearly all that fell are in one
// place, and it is not clear yet, others of it may be heard of.
func (l *Places) add(in *Input) bool {
	least := in.Policy.Failure.Min
	for _, h := range l.hits(in.Fallen) {
		if h.down < 2 {
			return false
		}
		given, peers, peersDown := l.peers(in.Given, h)
		if h.down*peers >= fewTimes*least*given && h.down*peers > 3*peersDown*given {
			l.domains, l.Down, l.Given = append(l.domains, h.domain), l.Down+h.down, l.Given+given
			return true
		}
		if l.of-l.Down-h.down < least {
			l.until = h.first.Add(hearing)
		}
	}
	return false
}

// peers counts the nodes of a place that were given the target, and those elsewhere that
// have had it at least since then, and how many of these fell.
func (l *Places) peers(given iter.Seq[Node], h *hit) (in, peers, down int) {
	for n := range given {
		switch {
		case l.Has(n.Group):
		case slices.Contains(n.Domains, h.domain):
			in++
		case n.Has && !n.Bound.After(h.latest):
			peers++
			if n.Fallen {
				down++
			}
		}
	}
	return in, peers, down
}
