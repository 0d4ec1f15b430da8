package judge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ramped is the name of a wave that grows, and the slash before the place of a step in it: the first of its steps has
// one node, and each later one twice as many as the one before.
const ramped = "more/"

// place is that of the step that is under way in a ramp; 0 before the first one, and false without a ramp.
func (r *Rollout) place() (n int, is bool) {
	is = slices.ContainsFunc(r.Steps, func(step string) bool { return strings.HasPrefix(step, ramped) })
	n, _ = strconv.Atoi(strings.TrimPrefix(r.Step, ramped)) // another step is before it
	return n, is
}

// run is what has become of one target since it became one.
type run struct {
	target string
	// had are the nodes that had it before, given those that got it since, joined those that came since.
	had, given, joined map[string]bool
}

// climb is what ramps goes by, with the run of each DaemonSet.
type climb struct {
	*book
	runs map[string]*run
}

// ramps wants no more nodes to get a target than the steps of a ramp take that have begun, and one of each step for
// each node that joined meanwhile.
func ramps(all []Entry) (out []Fault) {
	c := &climb{newBook(), map[string]*run{}}
	for _, e := range all {
		switch {
		case e.Rollout != nil && !e.Gone:
			c.rollout(e.Rollout)
		case e.Node != nil:
			c.node(e)
		case e.Pod != nil && !e.Gone && c.pods[e.Pod.UID] == nil && c.answering(e.At):
			out = append(out, c.grows(e)...)
		}
		c.note(e)
	}
	return out
}

func (c *climb) rollout(r *Rollout) {
	if has := c.runs[r.Set]; has != nil && has.target == r.goal() {
		return
	}
	begins := &run{r.goal(), map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, p := range c.pods {
		begins.had[p.Node] = begins.had[p.Node] || p.Set == r.Set && p.whole() == r.goal()
	}
	c.runs[r.Set] = begins
}

func (c *climb) node(e Entry) {
	for _, r := range c.runs {
		if e.Gone {
			delete(r.given, e.Node.Name)
		} else if c.nodes[e.Node.Name] == nil {
			r.joined[e.Node.Name] = true
		}
	}
}

// grows counts a node that gets a target.
func (c *climb) grows(e Entry) []Fault {
	n, r, most := c.nodes[e.Pod.Node], c.runs[e.Pod.Set], -1
	if r == nil || e.Pod.whole() != r.target {
		return nil
	}
	for _, s := range c.lately(e.Pod.Set, e.At) {
		place, is := s.place()
		if !is || s.Stable == "" || s.Stable == s.Target || s.goal() != r.target {
			return nil
		}
		most = max(most, 1<<place-1+place*len(r.joined))
	}
	if n == nil || n.Step == "canary" || r.had[n.Name] || most < 0 || c.ruleless(e.Pod.Set) {
		return nil
	}
	r.given[n.Name] = true
	if len(r.given) <= most {
		return nil
	}
	return []Fault{{e.At, "ramp", fmt.Sprintf("node %s is the %dth behind the canaries that gets %s of %s, and the "+
		"steps that have begun take %d", n.Name, len(r.given), r.target, e.Pod.Set, most)}}
}
