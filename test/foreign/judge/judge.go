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
	all = heard(all)
	out = append(out, revisions(all)...)
	out = append(out, knowledge(all)...)
	out = append(out, limits(all)...)
	out = append(out, first(all)...)
	out = append(out, standstill(all)...)
	out = append(out, placements(all)...)
	out = append(out, contents(all)...)
	out = append(out, alarms(all)...)
	out = append(out, gates(all)...)
	out = append(out, ramps(all)...)
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
			since, has := failed[p.Set+" "+p.whole()]
			if has && e.At.Sub(since) > asks {
				out = append(out, Fault{e.At, "failed", fmt.Sprintf("node %s gets %s of %s, which failed at %s",
					p.Node, p.whole(), p.Set, since.Format(time.TimeOnly))})
			}
		}
		b.note(e)
	}
	return out
}

// failures say when a revision of a DaemonSet failed, since somebody last had one tried again.
type failures map[string]time.Time

func (f failures) note(e Entry) {
	if s := e.Stored; s != nil && !s.Taken { // its author's own strategy leads it
		maps.DeleteFunc(f, func(key string, _ time.Time) bool { return strings.HasPrefix(key, s.Set+" ") })
	}
	if e.Retries != "" {
		maps.DeleteFunc(f, func(key string, _ time.Time) bool { return strings.HasPrefix(key, e.Retries+" ") })
	}
	r := e.Rollout
	if r == nil || r.Phase != "Halted" && r.Phase != "RolledBack" || !r.failed(r.goal()) {
		return
	}
	if _, known := f[r.Set+" "+r.goal()]; !known {
		f[r.Set+" "+r.goal()] = e.At
	}
}

// misfit says why a new pod is not its node's; "" if it is, or if nobody can say.
func (b *book) misfit(at time.Time, p *Pod) string {
	node, said := b.nodes[p.Node], b.lately(p.Set, at)
	if node == nil || len(said) == 0 || b.ruleless(p.Set) {
		return "" // standstill says more
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

// Unsettled says what is not as it must be in the end: each node that is in order has an available pod of the target,
// and each rollout is complete.
func Unsettled(all []Entry, sets []string) (out []string) {
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
	slices.Sort(out)
	return append(out, b.shut()...)
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
		want := 0
		if b.chosen(set, n) {
			want = 1
		}
		if n.Ready && (good[name] != want || other[name] != "") {
			out = append(out, fmt.Sprintf("node %s has %d daemons of %s's target %s%s",
				name, good[name], set, r.Target, other[name]))
		}
	}
	return out
}
