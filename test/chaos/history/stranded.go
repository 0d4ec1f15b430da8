package history

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/wants"
)

// mostDead is the share of nodes that may be dead without stopping the others, in percent: the policies of
// rounds say so.
const mostDead = 40

// Stranded says which nodes that are well do not have what their DaemonSets want there, though only others
// are dead. A node may have to wait for a dead one in its domain, and without a policy for any: there the
// dead use up what may be unavailable, as they do in Kubernetes. A share of that is one of the desired
// nodes, to which those that are unreachable do not belong.
func Stranded(s State, now time.Time) (out []string) {
	dead := 0
	for _, n := range s.Nodes {
		if !daemon.Well(n) {
			dead++
		}
	}
	if 100*dead > mostDead*len(s.Nodes) {
		return nil
	}
	for _, d := range s.Sets {
		if d.DeletionTimestamp != nil || d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			continue
		}
		current, _ := s.revisions(d)
		b := wants.BudgetOf(d, s.desired(d))
		stands := s.PolicyOf(d) == nil && dead >= max(b.Unavailable, b.Surge)
		for _, n := range s.Nodes {
			if stands && s.runsOn(d, n.Name, "", now) {
				continue
			}
			if daemon.Well(n) && wants.Judge(d, n) == wants.ShouldRun && !s.besideDead(d, n) && !s.runsOn(d, n.Name, current, now) {
				out = append(out, "node "+n.Name+" is well and does not have the newest "+d.Name+s.podsOn(d, n.Name, now))
			}
		}
	}
	slices.Sort(out)
	return out
}

// podsOn names the pods of the DaemonSet that the node has.
func (s State) podsOn(d *appsv1.DaemonSet, node string, now time.Time) (text string) {
	for _, p := range s.Pods {
		if ownerOf(p) != d.UID || daemon.TargetOf(p) != node {
			continue
		}
		text += ", has " + p.Name + " of " + markOf(p)
		switch {
		case p.DeletionTimestamp != nil:
			text += " which goes"
		case daemon.Available(d, p, now):
			text += " which is available"
		}
	}
	return text
}

// besideDead reports whether the node shares a domain of the DaemonSet's policy with one that is not well.
func (s State) besideDead(d *appsv1.DaemonSet, n *corev1.Node) bool {
	p := s.PolicyOf(d)
	if p == nil {
		return false
	}
	for _, domain := range p.Spec.Domains {
		value, has := n.Labels[domain.Key]
		for _, o := range s.Nodes {
			if other, also := o.Labels[domain.Key]; has && also && other == value && !daemon.Well(o) {
				return true
			}
		}
	}
	return false
}

// runsOn reports whether the node has an available pod of the revision, of any if that is "".
func (s State) runsOn(d *appsv1.DaemonSet, node, revision string, now time.Time) bool {
	return slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool {
		return ownerOf(p) == d.UID && daemon.TargetOf(p) == node && (revision == "" || hashOf(p) == revision) &&
			p.DeletionTimestamp == nil && daemon.Available(d, p, now)
	})
}
