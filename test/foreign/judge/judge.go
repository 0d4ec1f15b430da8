package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Fault is something that was not as promised.
type Fault struct {
	At   time.Time
	Rule string
	Text string
}

func (f Fault) String() string { return f.At.Format("15:04:05.000 ") + f.Rule + ": " + f.Text }

// Judge returns all faults of a history.
func Judge(all []Entry) (out []Fault) {
	out = append(out, revisions(all)...)
	out = append(out, knowledge(all)...)
	out = append(out, limits(all)...)
	return append(out, copies(all)...)
}

// revisions wants each pod that is made while the webhook answers to be of its node's revision, with its digests. Its
// node's is what the rollout's status said when the pod was made, or up to asks before that. A status that is written
// after the pod is no excuse. What has failed is made nowhere until somebody has it tried again, whatever the status
// says by then.
func revisions(all []Entry) (out []Fault) {
	b, failed := newBook(), failures{}
	for _, e := range all {
		failed.note(e)
		if p := e.Pod; p != nil && !e.Gone && b.pods[p.UID] == nil && b.answering(e.At) {
			if why := b.misfit(e.At, p); why != "" {
				out = append(out, Fault{e.At, "revision", why})
			}
			since, has := failed[p.Set+" "+p.Revision]
			if has && e.At.Sub(since) > asks {
				out = append(out, Fault{e.At, "failed", fmt.Sprintf("node %s gets %s of %s, which failed at %s",
					p.Node, p.Revision, p.Set, since.Format(time.TimeOnly))})
			}
		}
		b.note(e)
	}
	return out
}

// failures say when a revision of a DaemonSet failed, since somebody last had one tried again.
type failures map[string]time.Time

func (f failures) note(e Entry) {
	if e.Retries != "" {
		maps.DeleteFunc(f, func(key string, _ time.Time) bool { return strings.HasPrefix(key, e.Retries+" ") })
	}
	r := e.Rollout
	if r == nil || r.Phase != "Halted" && r.Phase != "RolledBack" || !r.failed(r.Target) {
		return
	}
	if _, known := f[r.Set+" "+r.Target]; !known {
		f[r.Set+" "+r.Target] = e.At
	}
}

// misfit says why a new pod is not its node's; "" if it is, or if nobody can say.
func (b *book) misfit(at time.Time, p *Pod) string {
	node, said := b.nodes[p.Node], b.lately(p.Set, at)
	if node == nil || len(said) == 0 {
		return ""
	}
	if !slices.ContainsFunc(said, func(s status) bool { return s.allows(node.Step, p.Revision) }) {
		last := said[len(said)-1]
		return fmt.Sprintf("node %s of step %s gets %s of %s, and the status says stable %s, target %s, step %q, %s",
			p.Node, node.Step, p.Revision, p.Set, last.Stable, last.Target, last.Step, last.Phase)
	}
	for _, s := range said {
		digest := s.Digests[template(p.Revision)]
		if digest == "" || strings.HasSuffix(p.Image, "@"+digest) {
			return ""
		}
	}
	return fmt.Sprintf("node %s gets image %s of %s, whose digest is known", p.Node, p.Image, p.Set)
}

// knowledge wants each pod that was made wrong while nobody answered to be told of: before it is put right, and within
// Known of the webhook's return. What the test deletes or breaks before that, and what a change makes right or
// outdated meanwhile, need not be.
func knowledge(all []Entry) (out []Fault) {
	b := newBook()
	for i, e := range all {
		if e.Answers {
			for _, p := range b.pods {
				if !p.Going && b.isWrong(e.At, p) && !told(all[i+1:], b, e.At, p) {
					out = append(out, Fault{e.At, "known", fmt.Sprintf("node %s has %s of %s, and nobody tells of it",
						p.Node, p.Revision, p.Set)})
				}
			}
		}
		b.note(e)
	}
	return out
}

func (b *book) isWrong(at time.Time, p *Pod) bool {
	node, all := b.nodes[p.Node], b.rollouts[p.Set]
	if node == nil || len(all) == 0 {
		return false
	}
	last := all[len(all)-1]
	if p.Revision != last.Target || last.allows(node.Step, p.Revision) {
		return false // a revision that is neither stable nor the target is outdated
	}
	for _, s := range all {
		if s.failed(p.Revision) {
			return b.made[p.UID].Sub(s.began) > settles // otherwise it may have come in its turn
		}
	}
	return true
}

// told reports whether somebody tells of a DaemonSet in time, or need not. before is not changed.
func told(rest []Entry, before *book, from time.Time, p *Pod) bool {
	step := before.nodes[p.Node].Step
	for _, e := range rest {
		switch {
		case e.At.Sub(from) > Known:
			return false
		case e.Told == p.Set, e.Touches == p.UID || e.Touches == p.Node:
			return true
		case e.Silent:
			return true // it is asked again after the next return
		case e.Node != nil && e.Node.Name == p.Node && (e.Gone || !e.Node.Ready):
			return true
		case e.Rollout != nil && e.Rollout.Set == p.Set && (e.Rollout.Target != p.Revision ||
			e.Rollout.allows(step, p.Revision)):
			return true
		}
	}
	return true // the round was over before
}

// taken is what we took away and has not come back, by DaemonSet and node.
type taken map[string]map[string]bool

// limits wants never more nodes of a DaemonSet without a daemon by our making than its policy allows: each deletion of
// an available daemon on a node that is in order counts, unless the test did it, until one is available there again or
// the node breaks. Who was taken before nodes begin to go back does not count on the way back. A limit holds from when
// it is written, and the one before it for as long as edits says.
func limits(all []Entry) (out []Fault) {
	b, open, most := newBook(), taken{}, map[string][]Entry{}
	for _, e := range all {
		switch {
		case e.Limit != nil:
			most[e.Limit.Set] = append(most[e.Limit.Set], e)
		case e.Rollout != nil:
			said := b.rollouts[e.Rollout.Set]
			if e.Rollout.back() && (len(said) == 0 || !said[len(said)-1].back()) {
				open[e.Rollout.Set] = nil
			}
		case e.Node != nil && (e.Gone || !e.Node.Ready):
			for _, nodes := range open {
				delete(nodes, e.Node.Name)
			}
		case e.Pod != nil:
			out = append(out, open.pod(b, e, most[e.Pod.Set])...)
		}
		b.note(e)
	}
	return out
}

// pod counts what becomes of one.
func (t taken) pod(b *book, e Entry, most []Entry) (out []Fault) {
	p, was := e.Pod, b.pods[e.Pod.UID]
	if p.Available && !p.Going && !e.Gone {
		delete(t[p.Set], p.Node)
		return nil
	}
	if was == nil || !was.Available || was.Going || !p.Going && !e.Gone || !b.blameless(p) || len(most) == 0 {
		return nil
	}
	if t[p.Set] == nil {
		t[p.Set] = map[string]bool{}
	}
	t[p.Set][p.Node] = true
	limit := limitAt(most, e.At)
	if have := len(t[p.Set]); have > limit {
		out = append(out, Fault{e.At, "limit", fmt.Sprintf("%s loses its daemon of %s: then %d nodes have none by our "+
			"making, and the limit is %d", p.Node, p.Set, have, limit)})
	}
	return out
}

// limitAt is the highest limit that may be followed at a time.
func limitAt(most []Entry, at time.Time) (limit int) {
	for i, l := range most {
		if i == len(most)-1 || at.Sub(most[i+1].At) < edits {
			limit = max(limit, l.Limit.Max)
		}
	}
	return limit
}

// blameless reports whether neither a pod's node nor the test has it go.
func (b *book) blameless(p *Pod) bool {
	node := b.nodes[p.Node]
	return node != nil && node.Ready && !b.touched[p.Node] && !b.touched[p.UID]
}

// copies wants none to go while a pod reads it, and no pod to be made for one that is not there.
func copies(all []Entry) (out []Fault) {
	b, made := newBook(), map[string]bool{}
	for _, e := range all {
		if e.Copy != "" && !e.Gone {
			made[e.Copy] = true
		}
		if e.Copy != "" && e.Gone {
			for _, p := range b.pods {
				if !p.Going && slices.Contains(p.Reads, e.Copy) {
					out = append(out, Fault{e.At, "copy", e.Copy +
						" goes, and the pod of " + p.Set + " on " + p.Node + " reads it"})
				}
			}
		}
		if p := e.Pod; p != nil && !e.Gone && b.pods[p.UID] == nil {
			for _, name := range p.Reads {
				if made[name] && !b.copies[name] {
					out = append(out, Fault{e.At, "copy", "the pod of " + p.Set + " on " +
						p.Node + " reads " + name + ", which is gone"})
				}
			}
		}
		b.note(e)
	}
	return out
}

// Unsettled says what is not as it must be in the end: each node that is in order has an available pod of the target,
// each rollout is complete, and no copy is there that no pod reads. lists are copies' lists, which are read by nobody.
func Unsettled(all []Entry, sets []string, isList func(name string) bool) (out []string) {
	b := newBook()
	for _, e := range all {
		b.note(e)
	}
	for _, set := range sets {
		said := b.rollouts[set]
		if len(said) == 0 {
			out = append(out, set+" has no rollout")
			continue
		}
		r := said[len(said)-1].Rollout
		if r.Phase != "Complete" || r.Stable != r.Target {
			out = append(out, set+" is "+r.Phase)
		}
		out = append(out, b.lacking(set, r)...)
	}
	read := map[string]bool{}
	for _, p := range b.pods {
		for _, name := range p.Reads {
			read[name] = true
		}
	}
	for name := range b.copies {
		if !read[name] && !isList(name) {
			out = append(out, "copy "+name+" is left over")
		}
	}
	slices.Sort(out)
	return out
}

// lacking are the nodes in order that have not just what they should.
func (b *book) lacking(set string, r *Rollout) (out []string) {
	good, other := map[string]int{}, map[string]string{}
	for _, p := range b.pods {
		is := p.Revision
		if !strings.Contains(r.Target, ".") {
			is = template(is)
		}
		digest := r.Digests[template(is)]
		switch {
		case p.Set != set:
		case p.Available && !p.Going && is == r.Target:
			good[p.Node]++
		default:
			other[p.Node] = fmt.Sprintf(", but a pod of %s with %s (known: %q)", p.Revision, p.Image, digest)
		}
	}
	for name, n := range b.nodes {
		if n.Ready && (good[name] != 1 || other[name] != "") {
			out = append(out, fmt.Sprintf("node %s has %d daemons of %s's target %s%s",
				name, good[name], set, r.Target, other[name]))
		}
	}
	return out
}
