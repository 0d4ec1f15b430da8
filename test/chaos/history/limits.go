package history

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/wants"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// count compares how many nodes are without an available pod by the rollout's doing
// with what the policy, or the DaemonSet, allows.
func (j *judge) count(d decision, g *guidance, p *corev1.Pod, forward, surge bool, now time.Time) {
	out := j.outOf(d, now, surge, j.turnedAt(d, g))
	labelsOf := func(name, key string) string {
		for _, n := range j.nodeOf(decision{at: place{node: name}, event: d.event}, g.low) {
			if n.Labels[key] != "" {
				return n.Labels[key]
			}
		}
		return ""
	}
	if !surge {
		j.countDomains(d, g, p, out, labelsOf)
	}
	counted := slices.DeleteFunc(slices.Clone(out), func(name string) bool {
		return name != d.at.node && j.faulty(name, d.early-lag, d.event) // it is not our doing that it is still down
	})
	total := j.inAll(d, surge)
	if !forward && len(counted) <= total {
		return
	}
	// Each of the policies may have been the one that counted, with its own steps.
	var step, own int
	for _, policy := range g.policies {
		nodes := j.inStep(d, g, policy, counted)
		limit, lacks := j.limitOf(d, g, policy)
		before := slices.DeleteFunc(slices.Clone(counted), func(name string) bool {
			return j.ofTheSameTurn(d, g, policy, name)
		})
		if nodes <= limit || lacks && len(before) <= total {
			return
		}
		step, own = max(step, nodes), max(own, limit)
	}
	pods := []types.UID{p.UID}
	for _, name := range counted {
		for _, t := range j.pods[place{d.at.set, name}] {
			pods = append(pods, t.First().GetUID())
		}
	}
	j.report(Limits, d.event, g.concerned(d, pods...), "node %s was changed (pod %s); that makes %d nodes of its step and %d in all by our own doing (%s), the step allows %d and the DaemonSet %d",
		d.at.node, p.Name, step, len(counted), strings.Join(out, ", "), own, total)
}

// ofTheSameTurn reports whether another node, of a step with a limit of its own, was taken in the turn of the
// decision. A turn asks the DaemonSet's limit before it takes nodes that this limit is not for; what it takes is then
// deleted in any order.
func (j *judge) ofTheSameTurn(d decision, g *guidance, policy *v1alpha1.RolloutPolicy, name string) bool {
	at := place{set: d.at.set, node: name}
	if at == d.at || j.taken[at] <= d.early {
		return false
	}
	_, lacks := j.limitOf(decision{at: at, event: d.event}, g, policy)
	return !lacks
}

// inStep counts the nodes that are in the step of the decision's node.
func (j *judge) inStep(d decision, g *guidance, policy *v1alpha1.RolloutPolicy, nodes []string) (step int) {
	names := map[string]bool{}
	for _, n := range j.nodeOf(d, g.low) {
		for _, at := range waves.Of(policy, n) {
			names[at.Name(policy)] = true
		}
	}
	for _, name := range nodes {
		n := j.nodeOf(decision{at: place{node: name}, event: d.event}, g.low)
		if name == d.at.node || len(n) > 0 && names[waves.Of(policy, n[len(n)-1])[0].Name(policy)] {
			step++
		}
	}
	return step
}

func (j *judge) countDomains(d decision, g *guidance, p *corev1.Pod, out []string, labelOf func(node, key string) string) {
	for _, domain := range g.policies[0].Spec.Domains {
		most, everywhere := 0, true
		for _, policy := range g.policies {
			i := slices.IndexFunc(policy.Spec.Domains, func(o v1alpha1.Domain) bool { return o.Key == domain.Key })
			if everywhere = everywhere && i >= 0; i >= 0 {
				most = max(most, policy.Spec.Domains[i].MaxUnavailable.IntValue())
			}
		}
		value, n := labelOf(d.at.node, domain.Key), 0
		for _, name := range out {
			if labelOf(name, domain.Key) == value {
				n++
			}
		}
		if everywhere && value != "" && n > most {
			j.report(Limits, d.event, g.concerned(d, p.UID), "node %s was changed (pod %s); that makes %d nodes of %s=%s by our own doing (%s), and %d are allowed",
				d.at.node, p.Name, n, domain.Key, value, strings.Join(out, ", "), most)
		}
	}
}

// turnedAt is the revision at which the rollout was last seen to turn back; 0 if it was not. What the
// target has broken before must not keep others with it, so only what was taken since then counts.
func (j *judge) turnedAt(d decision, g *guidance) (at int64) {
	was := true
	for _, t := range j.rollouts[j.tracks[d.at.set].First().GetName()] {
		for _, v := range t.Versions {
			r := v.Object.(*v1alpha1.DaemonSetRollout)
			if v.From > d.event && !slices.Contains(g.written, r) {
				return at
			}
			s := &r.Status
			back := s.StableRevision == s.TargetRevision || s.Phase == v1alpha1.PhaseRolledBack
			if back && !was {
				at = v.From
			}
			was = back
		}
	}
	return at
}

// outOf are the nodes that the rollout took down since a revision, or gave a second pod or another content, and that
// have nothing available yet, or do not show it; the decision's own too.
func (j *judge) outOf(d decision, now time.Time, surge bool, since int64) (out []string) {
	out = append(out, d.at.node)
	if surge {
		for at := range j.doubled {
			if at.set == d.at.set && at != d.at {
				out = append(out, at.node)
			}
		}
		slices.Sort(out)
		return out
	}
	for at, revision := range j.taken {
		if at.set != d.at.set || at == d.at {
			continue
		}
		if j.recovered(d, at, revision, now) {
			delete(j.taken, at)
			continue
		}
		if revision < since {
			continue
		}
		out = append(out, at.node)
	}
	j.taken[d.at] = d.event
	for at := range j.leaving {
		switch {
		case at.set != d.at.set || at == d.at:
		case j.stillLeaving(at, d.event):
			out = append(out, at.node)
		default:
			delete(j.leaving, at)
		}
	}
	out = append(out, j.nodesGiven(d, since)...)
	slices.Sort(out)
	return slices.Compact(out)
}

// faulty reports whether the node was out of order, or went, at some time between two revisions.
func (j *judge) faulty(name string, low, high int64) bool {
	return slices.ContainsFunc(j.nodes[name], func(t *track) bool {
		return t.Gone > low && t.Gone <= high || slices.ContainsFunc(t.Between(low, high), func(o metav1.Object) bool {
			return o.GetDeletionTimestamp() != nil || !daemon.Well(o.(*corev1.Node))
		})
	})
}

// inAll is how many nodes the DaemonSet allows at a time.
func (j *judge) inAll(d decision, surge bool) int {
	b := j.budget(d)
	if surge {
		return b.Surge
	}
	return b.Unavailable
}

// limitOf is how many nodes a policy allows at a time in the step of the decision's node;
// lacks tells that it says nothing, and the DaemonSet's limit counts.
func (j *judge) limitOf(d decision, g *guidance, p *v1alpha1.RolloutPolicy) (own int, lacks bool) {
	for _, n := range j.nodeOf(d, g.low) {
		for _, at := range waves.Of(p, n) {
			if at.Wave == len(p.Spec.Waves) || p.Spec.Waves[at.Wave].MaxUnavailable == nil {
				lacks = true
				continue
			}
			own = max(own, wants.Scaled(p.Spec.Waves[at.Wave].MaxUnavailable, j.most)*at.AtOnce(p, g.rollouts, j.most))
		}
	}
	return own, lacks
}
