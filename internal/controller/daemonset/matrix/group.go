package matrix

import (
	"fmt"
	"strings"
)

// group is a set of cells that a row keeps in the order of nodes, so that a few
// can be named without a walk.
type group uint8

const (
	lacking group = iota // desired, without an available pod
	down                 // count against maxUnavailable
	surging              // count against maxSurge
	groupCount
)

// in tells which groups a cell with that tally is in.
func (t *tally) in(g group) bool {
	switch g {
	case lacking:
		return t.desired > t.available
	case down:
		return t.rolloutUnavailable > 0
	}
	return t.rolloutSurging > 0
}

// sampleSize is how many nodes a message names.
const sampleSize = 3

// sample names the first nodes of a group and what each waits for.
func (r *row) sample(g group) string {
	var names []string
	r.groups[g].Ascend(func(c *cell) bool {
		names = append(names, c.node+" ("+r.describe(c, g)+")")
		return len(names) < sampleSize
	})
	text := strings.Join(names, ", ")
	if more := r.groups[g].Len() - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// describe says why the cell is in the group. The words change seldom: a step
// that takes a moment has none of its own.
func (r *row) describe(c *cell, g group) string {
	p := c.decisive(g)
	if p == nil {
		return "no pod yet"
	}
	said := "pod " + p.info.Name
	switch at, ready := p.availableAt(c.row.info.MinReadySeconds); {
	case !p.live():
		return said + " is terminating"
	case p.info.Phase != PodActive:
		return said + " has " + p.info.Phase.String()
	case p.info.Unplaceable != "":
		return said + " cannot be placed: " + p.info.Unplaceable
	case !p.info.Bound:
		return said + " is not scheduled yet"
	case !p.info.Ready:
		return said + " is not ready"
	case !ready || at.After(r.now):
		return said + " is not ready for long enough yet"
	case !p.unsureUntil.IsZero():
		return said + " may be deleted: there was no answer"
	}
	return "more than one pod"
}

// decisive is the pod that puts the cell into the group: the successor where
// the group is about surging, else the one that counts in the status.
func (c *cell) decisive(g group) *trackedPod {
	for _, p := range c.pods {
		if g == surging && p.live() && p.info.Revision == c.row.info.Revision || g != surging && p.mapped() {
			return p
		}
	}
	return nil
}
