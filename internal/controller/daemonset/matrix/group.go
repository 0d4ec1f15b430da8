package matrix

import (
	"fmt"
	"strings"
)

// groups are the numbers of which a row keeps the cells too, in the order of nodes, so
// that a few can be named without a walk.
var groups = [...]count{lacking, down, surging}

// sampleSize is how many nodes a message names.
const sampleSize = 3

// sample names the first nodes of a group and what each waits for.
func (r *row) sample(g count) string {
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
func (r *row) describe(c *cell, g count) string {
	p := r.decisive(c, g)
	if p == nil {
		return "no pod yet"
	}
	switch why := r.trouble(p); why {
	case TooManyPods:
		return string(why)
	case PodUnplaceable:
		return "pod " + p.info.Name + " " + string(why) + ": " + p.info.Unplaceable
	default:
		return "pod " + p.info.Name + " " + string(why)
	}
}

// decisive is the pod that puts the cell into the group: the successor where
// the group is about surging, else the one that counts in the status.
func (r *row) decisive(c *cell, g count) *trackedPod {
	target := r.order(c.node).Target
	for _, p := range c.pods {
		if g == surging && p.live() && p.info.Revision == target || g != surging && p.mapped() {
			return p
		}
	}
	return nil
}
