package course

import "github.com/everynode/everynode/api/v1alpha1"

// What a daemon was like that a change takes away is told to the pod that comes in its
// place. Until there is one, only the rollout's status tells it to a process that starts
// then: what was broken is no evidence against a revision, and what worked is. So it is
// stored first, and then the daemon is taken away: a node whose turn has come is reserved,
// which counts against the limits, until the API holds what its daemon is like now.

// Store tells, before a status is written, what the API will say then. Until Kept it may
// say that or what it said before: so what is in both is known to be there.
func (c *Course) Store(s *v1alpha1.Replacing) {
	to := replaced(s)
	for name, before := range c.stored {
		if to[name] != before {
			delete(c.stored, name)
			c.recheck(name)
		}
	}
}

// Kept tells that the API holds what a status says of daemons that are gone or about to go.
func (c *Course) Kept(s *v1alpha1.Replacing) {
	was := c.stored
	c.stored = replaced(s)
	for name, before := range c.stored {
		if was[name] != before {
			c.recheck(name)
		}
	}
	for name := range was {
		if c.stored[name] == "" {
			c.recheck(name)
		}
	}
}

func (c *Course) recheck(name string) {
	if n := c.nodes[name]; n != nil {
		c.refresh(n)
	}
}

// Owes tells whether a pod waits for the API to hold what a daemon was like.
func (c *Course) Owes() bool { return len(c.owed) > 0 }

// Reserved is how many nodes do whose turn has come.
func (c *Course) Reserved() int { return len(c.reserved) }

// matters tells whether it will matter what the node's daemon was like before its change:
// it gets one of the target in its place, now or when the policy can be followed again.
func (c *Course) matters(n *node) bool {
	want := c.target(n)
	comes := want == c.state.target || want == "" && !c.hasFailed(c.state.target)
	return n.before != "" && n.chosen.any() && c.changing() && comes && !c.leaves(n, c.state.target)
}

// owes tells whether the API does not hold that, and no pod of the node says it.
func (c *Course) owes(n *node) bool {
	return (n.daemon.Revision == "" || c.reserved[n]) && c.matters(n) && c.stored[n.name] != n.before
}

// remember brings what the status says of the node in line with its facts.
func (c *Course) remember(n *node) {
	note := func(of map[*node]bool, is bool) {
		if is {
			of[n] = true
		} else {
			delete(of, n)
		}
	}
	note(c.replacing, (n.daemon.Revision == "" || c.reserved[n]) && c.matters(n))
	note(c.owed, c.owes(n) && c.rank(n) <= rankEnded)
}

// toldBefore takes note of what the node's daemon says of the one before it, and of what one is
// like whose turn is being stored.
func (c *Course) toldBefore(n *node, was *Daemon) {
	d := &n.daemon
	if another := was.Revision == "" || !d.Made.Equal(was.Made); another && c.changing() && d.Revision == c.state.target && d.Before != "" {
		n.before = d.Before // it was begun before a restart
	}
	if c.reserved[n] {
		n.before = c.likeNow(n)
	}
}

// likeNow is what the daemon of a reserved node is like by now, which may change as long as it
// is there.
func (c *Course) likeNow(n *node) Before {
	switch d := &n.daemon; {
	case d.Revision == *n.begun && d.Available:
		return WasAvailable
	case d.Revision == *n.begun, d.Ended && d.EndsBy.IsZero():
		return WasNotAvailable
	}
	return n.before // somebody has taken it away, or does
}

// release ends the reservations of nodes that need to wait no longer: whether it is their
// turn is decided anew, by what is known now. It ends all when nothing may begin.
func (c *Course) release() {
	all := !c.followed()
	for n := range c.reserved {
		if all || !c.owes(n) {
			c.end(n)
			n.before = ""
			c.refresh(n)
		}
	}
}

// revoke ends the changes that were let begin for another target and show nowhere: nobody
// has asked then what the daemon is like that is to go.
func (c *Course) revoke() {
	for _, n := range c.nodes {
		if n.begun != nil && *n.begun != "" && n.daemon.Revision == *n.begun && !c.ds.Surge {
			c.end(n)
		}
	}
}

// end takes note that the node's change is not under way, or shows.
func (c *Course) end(n *node) {
	n.begun = nil
	delete(c.reserved, n)
}
