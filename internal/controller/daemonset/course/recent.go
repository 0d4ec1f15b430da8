package course

import (
	"fmt"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course/failures"
	"github.com/everynode/everynode/internal/controller/daemonset/course/outage"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// suspicion is how long after its change a node that falls silent, or out of order in another way, is suspicious.
const suspicion = 10 * time.Minute

// lately says whether a node fell out of order a short while ago.
type lately uint8

const (
	notLately    lately = iota
	soonAfter           // and soon after it was given the target
	withoutCause        // and it has another revision
)

// recent counts the nodes that fell out of order a short while ago. When many more of those that were given the target
// did than of the others, the target is to blame: it may have filled the disk, or taken the network away. What somebody
// wants, such as a cordon, has no time, and is not counted.
type recent struct {
	changed map[*node]bool
	// unblamed are those of them that may not count as failed yet. Who is known to is not
	// looked at again with every fact, or a fleet that falls silent costs its square.
	unblamed map[*node]bool
	others   int
	ends     deadline.Timers[*node]
	graves   outage.Graves
	// before is how many of all nodes had fallen out of order lately when the target came.
	before, of int
	lost       outage.Places
}

// bury remembers a node that is deleted for as long as it would count.
func (r *recent) bury(c *Course, n *node) {
	if n.lately != notLately {
		dead := &outage.Dead{Name: n.Name, Node: c.fallen(n), Fall: n.marked, Blamed: !r.unblamed[n]}
		r.graves.Bury(dead, n.quiet.At())
	}
}

// note brings a node's place in the counts in line with its facts.
func (r *recent) note(c *Course, n *node) {
	is := c.latelyOf(n)
	if is == notLately && (n.fact.Fault == "" || n.fact.Since.IsZero()) && c.remembers(n) {
		return
	}
	ends := n.fell.Add(suspicion)
	if is == notLately {
		ends = time.Time{}
	}
	if is != n.lately {
		r.drop(n)
		n.marked = outage.Fall{At: n.fell, Fault: n.fact.Fault, Silent: n.fact.Silent}
		switch n.lately = is; is {
		case soonAfter:
			r.changed[n], r.unblamed[n] = true, true
		case withoutCause:
			r.others++
		}
	}
	r.ends.Set(&n.quiet, ends)
}

// latelyOf says whether the node, as it is now, fell out of order a short while ago.
func (c *Course) latelyOf(n *node) lately {
	switch {
	case n.fact.Fault == "", n.fact.Since.IsZero(), !n.chosen.Any(), !n.fell.Add(suspicion).After(c.now):
		return notLately
	case !c.changing || n.daemon.Revision != c.state.target:
		return withoutCause
	case !c.fellBefore(n) && c.fellAfterItsChange(n): // and the target was not tried again since
		return soonAfter
	}
	return notLately
}

// remembers reports whether the node, which is in order again, counts as fallen all the same, until its time ends: one
// that a revision restarts is back soon.
func (c *Course) remembers(n *node) bool {
	switch {
	case !n.chosen.Any():
		return false
	case n.lately == soonAfter:
		return c.changing && n.daemon.Revision == c.state.target && !n.marked.At.Before(c.state.since)
	}
	return n.lately == withoutCause
}

// fellAfterItsChange reports whether the node fell out of order soon after it was given its pod. Of a silent one the
// API's clock says both. Any other fault has a time of the node's own clock, and what was given to a pod that runs one
// of a controller's, so this process' says it if it has seen both.
func (c *Course) fellAfterItsChange(n *node) bool {
	fell, bound := n.fact.Since, n.daemon.Bound
	if (!n.fact.Silent || n.daemon.Given) && n.change.bound.After(c.began) {
		fell, bound = n.fell, n.change.bound
	}
	return !fell.Before(bound) && fell.Before(bound.Add(suspicion))
}

// fellBefore reports whether the node fell out of order before the target was tried again. This process' clock says it
// if it has seen one of both, and else the API's.
func (c *Course) fellBefore(n *node) bool {
	if c.state.since.After(c.began) || n.fell.After(c.began) {
		return n.fell.Before(c.state.since)
	}
	return !n.fact.Since.After(c.state.after)
}

// age has the faults that the course was told of before it began be as old as the API's clock says.
func (c *Course) age() {
	for _, n := range c.nodes {
		if !n.fact.Since.IsZero() {
			n.fell = c.now.Add(-max(0, c.api.Sub(n.fact.Since)))
		}
	}
}

// drop takes the node out of the counts.
func (r *recent) drop(n *node) {
	delete(r.changed, n)
	delete(r.unblamed, n)
	if n.lately == withoutCause {
		r.others--
	}
	n.lately = notLately
	r.ends.Stop(&n.quiet)
}

// forget drops those whose silence is no news any more.
func (r *recent) forget(c *Course) {
	for t := r.ends.Pop(c.now); t != nil; t = r.ends.Pop(c.now) {
		r.drop(t.Owner)
	}
	r.graves.Forget(c.now)
}

// baseline remembers how usual it is that nodes fall out of order: that so many have lately, and not by the target.
func (r *recent) baseline(c *Course, fell int) {
	r.before, r.of = fell, c.queue.Totals[standing.Selected]
}

// suspect blames the nodes that fell out of order after their change, if the share of the others that did is not at
// least a third of theirs, and no place explains it. It reports whether it did.
func (c *Course) suspect() bool {
	r := &c.recent
	goneChanged, goneUnblamed, goneOthers := r.graves.Count()
	down, given := len(r.changed)+goneChanged, c.queue.Totals[standing.Given]
	if !c.changing || c.policy == nil || len(r.unblamed)+goneUnblamed == 0 || down < c.policy.Failure.Min {
		return false // asked with each event
	}
	others, of := r.others+goneOthers, c.queue.Totals[standing.Selected]-given+goneOthers
	given += goneChanged
	if of == 0 {
		others, of = r.before, max(r.of, 1)
	}
	if down*of <= 3*others*given {
		return false
	}
	l := &r.lost
	if !l.Find(c.outages(down)) {
		return false
	}
	if down, given = down-l.Down, given-l.Given; down < c.policy.Failure.Min || down*of <= 3*others*given {
		return false
	}
	return c.accuseAll(fmt.Sprintf("%d of %d changed nodes did, %d of %d others", down, given, others, of))
}

// accuseAll blames those who are in no place that is lost, and reports whether there were any.
func (c *Course) accuseAll(compared string) (found bool) {
	r := &c.recent
	for n := range r.unblamed {
		if !r.lost.Has(n.Group) {
			delete(r.unblamed, n)
			found = c.accuse(n.Name, n.marked, compared) || found
			c.queue.Doubt(&n.Member)
		}
	}
	for d := range r.graves.Fallen() {
		if !d.Blamed && !r.lost.Has(d.Group) {
			r.graves.Blame(d)
			found = c.accuse(d.Name, d.Fall, compared) || found
		}
	}
	return found
}

// accuse counts a node as failed that fell out of order, and reports whether it did not before.
func (c *Course) accuse(name string, is outage.Fall, compared string) bool {
	if c.state.failures.Has(name) {
		return false
	}
	f := failures.Failure{Reason: standing.BecauseFault, Why: "it fell out of order (" + is.Fault + "): " + compared}
	if is.Silent {
		f = failures.Failure{Reason: standing.BecauseSilent, Why: "it stopped answering: " + compared}
	}
	c.state.failures.Blame(name, f)
	return true
}

// fallen is what the places follow from of one node.
func (c *Course) fallen(n *node) outage.Node {
	return outage.Node{
		Group: n.Group, Fallen: n.lately == soonAfter, Fell: n.marked.At,
		Bound: n.daemon.Bound, Has: n.daemon.Revision == c.state.target,
	}
}

// outages is what the places follow from that explain why so many nodes fell.
func (c *Course) outages(down int) *outage.Input {
	r := &c.recent
	fallen := func(yield func(outage.Node) bool) {
		for n := range r.changed {
			if !yield(c.fallen(n)) {
				return
			}
		}
	}
	given := func(yield func(outage.Node) bool) {
		for _, n := range c.nodes {
			if n.view.Has(standing.Given) && !yield(c.fallen(n)) {
				return
			}
		}
	}
	return &outage.Input{
		Now: c.now, Target: c.state.target, Policy: c.policy, Places: c.queue.Places(),
		Count: down, Fallen: r.graves.With(fallen), Given: r.graves.With(given),
	}
}
