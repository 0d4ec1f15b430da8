package judge

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// knowledge wants each pod that was made wrong while nobody answered to be told of within Known of the webhook's
// return, and to be counted by then as long as it is there. What the test deletes or breaks before that, and what a
// change makes right or outdated meanwhile, need not be.
func knowledge(all []Entry) (out []Fault) {
	b := newBook()
	for i, e := range all {
		if e.Answers {
			out = append(out, b.known(e.At, all[i+1:])...)
		}
		b.note(e)
	}
	return out
}

// known follows what is wrong when the webhook answers again.
func (b *book) known(from time.Time, rest []Entry) (out []Fault) {
	still := map[string]int{}
	for _, p := range b.pods {
		if p.Going || !b.isWrong(p) {
			continue
		}
		told, left := b.fate(rest, from, p)
		if !told {
			out = append(out, Fault{from, "known", fmt.Sprintf("node %s has %s of %s, and nobody tells of it",
				p.Node, p.Revision, p.Set)})
		}
		if left {
			still[p.Set]++
		}
	}
	for set, n := range still {
		if counted := counts(rest, from, set); counted < n {
			out = append(out, Fault{from, "counted", fmt.Sprintf("%d pods of %s are wrong until %v later, "+
				"and the metric says %d", n, set, Known, counted)})
		}
	}
	return out
}

// isWrong reports whether a pod was made while nobody answered, of a revision that was not its node's.
func (b *book) isWrong(p *Pod) bool {
	node, all := b.nodes[p.Node], b.rollouts[p.Set]
	if node == nil || len(all) == 0 || !b.chosen(p.Set, node) || b.ruleless(p.Set) {
		return false
	}
	last := all[len(all)-1]
	if last.contents() && !strings.Contains(p.Revision, ".") {
		return true // it reads what its author has written last
	}
	if p.Revision != last.Target || last.allows(node.Step, p.Revision) {
		return false // a revision that is neither stable nor the target is outdated
	}
	for _, s := range all {
		if s.failed(p.whole()) {
			return b.made[p.UID].Sub(s.began) > settles // otherwise it may have come in its turn
		}
	}
	return true
}

// fate reports whether somebody tells of a wrong pod in time, or need not, and whether it is there and wrong all the
// time until then.
func (b *book) fate(rest []Entry, from time.Time, p *Pod) (told, still bool) {
	step, gone := b.nodes[p.Node].Step, false
	for _, e := range rest {
		switch {
		case e.At.Sub(from) > Known:
			return told, !gone
		case e.Told == p.Set:
			told = true
		case e.Pod != nil && e.Pod.UID == p.UID && (e.Gone || e.Pod.Going):
			gone = true
		case b.excused(e, p, step):
			return true, false
		}
	}
	return true, false // the round was over before
}

// excused reports whether an entry ends that a pod must be told of.
func (b *book) excused(e Entry, p *Pod, step string) bool {
	switch {
	case e.Touches == p.UID || e.Touches == p.Node, e.Policy == p.Set:
		return true
	case e.Silent:
		return true // it is asked again after the next return
	case e.Stored != nil:
		was := b.stored[p.Set]
		return e.Stored.Set == p.Set && was != nil && e.Stored.Placement != was.Placement && e.Stored.Placement != ""
	case e.Node != nil:
		return e.Node.Name == p.Node && (e.Gone || !e.Node.Ready)
	case e.Rollout != nil:
		return e.Rollout.Set == p.Set && (e.Gone || e.Rollout.excuses(p, step))
	}
	return false
}

// excuses reports whether a wrong pod is right or outdated by a status.
func (r *Rollout) excuses(p *Pod, step string) bool {
	if r.contents() && !strings.Contains(p.Revision, ".") {
		return false
	}
	return r.Target != p.Revision || r.allows(step, p.Revision)
}

// counts is the last number of wrong pods that was shown within Known of a time.
func counts(rest []Entry, from time.Time, set string) (n int) {
	for _, e := range rest {
		if e.At.Sub(from) > Known {
			return n
		}
		if e.Counted != nil && e.Counted.Set == set {
			n = e.Counted.N
		}
	}
	return n
}

// contents reports whether content is a part of both revisions.
func (r *Rollout) contents() bool {
	return strings.Contains(r.Stable, ".") && strings.Contains(r.Target, ".")
}

// early are the pods of a DaemonSet that have the target before their node's step has begun, on nodes in order.
func (b *book) early(set string) (out []*Pod) {
	said := b.rollouts[set]
	for _, p := range b.pods {
		n := b.nodes[p.Node]
		if p.Set != set || p.Going || n == nil || !n.Ready || !b.isWrong(p) {
			continue
		}
		if last := said[len(said)-1]; p.Revision == last.Target && !last.begun(n.Step) {
			out = append(out, p)
		}
	}
	return out
}

// first wants who got the target before its step to go back before anybody else is changed.
func first(all []Entry) (out []Fault) {
	b := newBook()
	for _, e := range all {
		if e.Pod != nil && b.takes(e) && !b.silent && e.At.Sub(b.answers) > asks && b.forward(e) {
			if early := b.early(e.Pod.Set); len(early) > 0 {
				out = append(out, Fault{e.At, "first", fmt.Sprintf("%s is changed before %s goes back, which has %s "+
					"of %s", e.Pod.Node, early[0].Node, early[0].Revision, e.Pod.Set)})
			}
		}
		b.note(e)
	}
	return out
}

// forward reports whether a pod that we take goes because its node is to have the target, by what was said for a while.
func (b *book) forward(e Entry) bool {
	said := b.rollouts[e.Pod.Set]
	if len(said) == 0 || b.ruleless(e.Pod.Set) {
		return false
	}
	for _, s := range b.lately(e.Pod.Set, e.At) {
		if s.back() || s.Stable == "" || e.Pod.Revision != s.Stable || !s.begun(b.nodes[e.Pod.Node].Step) {
			return false
		}
	}
	return true
}

// Uncorrected are the pods that are wrong, though nothing keeps them from going back: the webhook answers, nobody has
// the rollout stand still, and no other node of their step or domain is without a daemon.
func Uncorrected(all []Entry) (out []string) {
	b := newBook()
	for _, e := range all {
		b.note(e)
	}
	for _, p := range b.pods {
		n, said := b.nodes[p.Node], b.rollouts[p.Set]
		if p.Going || !b.isWrong(p) || !n.Ready || b.silent || b.crowded(p) {
			continue
		}
		if phase := said[len(said)-1].Phase; phase != "Halted" && phase != "Paused" {
			out = append(out, fmt.Sprintf("node %s has %s of %s, which is %s", p.Node, p.Revision, p.Set, phase))
		}
	}
	slices.Sort(out)
	return out
}

// crowded reports whether another node of a pod's step or domain has no daemon that is available.
func (b *book) crowded(p *Pod) bool {
	well, at := map[string]bool{}, b.nodes[p.Node]
	for _, other := range b.pods {
		well[other.Node] = well[other.Node] || other.Set == p.Set && other.Available && !other.Going
	}
	for name, n := range b.nodes {
		if name != p.Node && !well[name] && b.chosen(p.Set, n) && (n.Step == at.Step || n.Rack == at.Rack) {
			return true
		}
	}
	return false
}
