package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/wants"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// State is everything that exists at one moment.
type State struct {
	Sets      []*appsv1.DaemonSet
	Nodes     []*corev1.Node
	Pods      []*corev1.Pod
	Revisions []*appsv1.ControllerRevision
	Policies  []*v1alpha1.RolloutPolicy
	Rollouts  []*v1alpha1.DaemonSetRollout
	// Contents are the ConfigMaps and Secrets of DaemonSets' contents, and what they were copied from.
	Contents []metav1.Object
	Variants []*v1alpha1.DaemonSetVariant
}

// Last is what exists at the end of a record.
func (r Record) Last() (s State) {
	for _, t := range lives.InOrder(index(r.Events)) {
		if t.Gone != 0 {
			continue
		}
		switch o := t.Last().(type) {
		case *appsv1.DaemonSet:
			s.Sets = append(s.Sets, o)
		case *corev1.Node:
			s.Nodes = append(s.Nodes, o)
		case *corev1.Pod:
			s.Pods = append(s.Pods, o)
		case *appsv1.ControllerRevision:
			s.Revisions = append(s.Revisions, o)
		case *v1alpha1.RolloutPolicy:
			s.Policies = append(s.Policies, o)
		case *v1alpha1.DaemonSetRollout:
			s.Rollouts = append(s.Rollouts, o)
		case *v1alpha1.DaemonSetVariant:
			s.Variants = append(s.Variants, o)
		case *corev1.ConfigMap, *corev1.Secret:
			s.Contents = append(s.Contents, o)
		}
	}
	return s
}

// Unsettled says what is not yet as it should be once nobody does anything any more; empty when all is well.
func Unsettled(s State, now time.Time) (out []string) {
	out = append(out, s.nodes()...)
	out = append(out, s.leaks()...)
	out = append(out, s.rollouts()...)
	for _, d := range s.Sets {
		for _, text := range s.set(d, now) {
			out = append(out, "DaemonSet "+d.Name+": "+text)
		}
	}
	slices.Sort(out)
	return out
}

func (s State) nodes() (out []string) {
	for _, n := range s.Nodes {
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready {
			out = append(out, "node "+n.Name+" is not ready")
		}
		for _, taint := range n.Spec.Taints {
			cordoned := taint.Key == corev1.TaintNodeUnschedulable && n.Spec.Unschedulable
			if !strings.HasPrefix(taint.Key, wish.UserKey) && !cordoned {
				out = append(out, "node "+n.Name+" still has taint "+taint.ToString())
			}
		}
	}
	return out
}

// leaks are objects that nobody will miss and nobody removes.
func (s State) leaks() (out []string) {
	sets, nodes := map[types.UID]bool{}, map[string]bool{}
	for _, d := range s.Sets {
		sets[d.UID] = true
	}
	for _, n := range s.Nodes {
		nodes[n.Name] = true
	}
	for _, p := range s.Pods {
		owner := ownerOf(p)
		switch {
		case owner != "" && !sets[owner]:
			out = append(out, "pod "+p.Name+" belongs to a DaemonSet that is gone")
		case p.DeletionTimestamp != nil:
			out = append(out, "pod "+p.Name+" is still on its way out")
		case p.Spec.NodeName != "" && !nodes[p.Spec.NodeName]:
			out = append(out, "pod "+p.Name+" is on a node that is gone")
		}
		out = append(out, s.unclaimed(p)...)
	}
	for _, r := range s.Revisions {
		if owner := ownerOf(r); owner != "" && !sets[owner] {
			out = append(out, "revision "+r.Name+" belongs to a DaemonSet that is gone")
		}
	}
	return out
}

// unclaimed tells which DaemonSets should have taken the pod, or let it go.
func (s State) unclaimed(p *corev1.Pod) (out []string) {
	owner := ownerOf(p)
	for _, d := range s.Sets {
		if owner == "" && selects(d, p) {
			out = append(out, "pod "+p.Name+" was not adopted by "+d.Name)
		}
		if owner == d.UID && !selects(d, p) {
			out = append(out, "pod "+p.Name+" was not released by "+d.Name)
		}
	}
	return out
}

// set judges one DaemonSet: its pods, its revisions and its status.
func (s State) set(d *appsv1.DaemonSet, now time.Time) (out []string) {
	if d.DeletionTimestamp != nil {
		return []string{"is still on its way out"}
	}
	current, texts := s.revisions(d)
	out = append(out, texts...)
	want := appsv1.DaemonSetStatus{ObservedGeneration: d.Generation}
	nodes := slices.SortedFunc(slices.Values(s.Nodes), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	placed := 0
	for _, n := range nodes {
		var here []*corev1.Pod
		for _, p := range s.Pods {
			if ownerOf(p) == d.UID && daemon.TargetOf(p) == n.Name {
				here = append(here, p)
			}
		}
		placed += len(here)
		f := wants.Judge(d, n)
		if f != wants.MayStay || s.PolicyOf(d) == nil {
			out = append(out, judgePods(d, n.Name, f, here, current, now)...)
		}
		count(&want, d, f, here, current, now)
	}
	for _, p := range s.Pods {
		if ownerOf(p) == d.UID {
			placed--
		}
	}
	if placed != 0 {
		out = append(out, fmt.Sprintf("has %d pods that are on none of the nodes", -placed))
	}
	if deletesNothing(d) && (len(s.Variants) > 0 || slices.ContainsFunc(s.Pods, revision.Varied)) {
		want.UpdatedNumberScheduled = d.Status.UpdatedNumberScheduled // pods keep the variants by which they were made
	}
	if got := wants.Numbers(d.Status); got != wants.Numbers(want) {
		out = append(out, fmt.Sprintf("the status says %s, a recount %s", got, wants.Numbers(want)))
	}
	return out
}

func judgePods(d *appsv1.DaemonSet, node string, f wants.Fit, here []*corev1.Pod, current string, now time.Time) (out []string) {
	switch {
	case f == wants.Unfit && len(here) > 0:
		out = append(out, "node "+node+" is not for it and has "+describe(here))
	case len(here) > 1:
		out = append(out, "node "+node+" has "+describe(here))
	case f == wants.ShouldRun && len(here) == 0:
		out = append(out, "node "+node+" has no pod")
	}
	for _, p := range here {
		// One that only may stay may have come too late to be bound, and waits.
		if f == wants.ShouldRun && !daemon.Available(d, p, now) {
			out = append(out, "pod "+p.Name+" on node "+node+" is not available")
		}
		if d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType && hashOf(p) != current {
			out = append(out, "pod "+p.Name+" on node "+node+" has an old template")
		}
		if hashOf(p) == current && markOf(p) != markOfSet(d) && markOf(p) != "" {
			out = append(out, "pod "+p.Name+" on node "+node+" carries the newest hash and another template")
		}
	}
	return out
}

func hashOf(o metav1.Object) string { return o.GetLabels()[appsv1.ControllerRevisionHashLabelKey] }

// count recounts the status.
func count(want *appsv1.DaemonSetStatus, d *appsv1.DaemonSet, f wants.Fit, here []*corev1.Pod, current string, now time.Time) {
	if f != wants.ShouldRun {
		if len(here) > 0 {
			want.NumberMisscheduled++
		}
		return
	}
	want.DesiredNumberScheduled++
	want.NumberUnavailable++
	if len(here) == 0 {
		return
	}
	want.CurrentNumberScheduled++
	p := here[0]
	if hashOf(p) == current {
		want.UpdatedNumberScheduled++
	}
	if _, ready := daemon.ReadySince(p); ready {
		want.NumberReady++
	}
	if daemon.Available(d, p, now) {
		want.NumberAvailable++
		want.NumberUnavailable--
	}
}

// revisions judges the revisions of a DaemonSet and returns the current one's hash.
func (s State) revisions(d *appsv1.DaemonSet) (current string, out []string) {
	var newest *appsv1.ControllerRevision
	used := s.hashesOf(d)
	spare, same, twin := 0, 0, ""
	for _, r := range s.Revisions {
		if ownerOf(r) != d.UID {
			if ownerOf(r) == "" && selects(d, r) {
				out = append(out, "revision "+r.Name+" was not adopted")
			}
			continue
		}
		switch {
		case newest == nil || r.Revision > newest.Revision:
			newest, twin = r, ""
		case r.Revision == newest.Revision:
			twin = r.Name
		}
		if revision.MarkOf(r) == markOfSet(d) {
			same++
		} else if !used[hashOf(r)] {
			spare++
		}
	}
	if newest == nil {
		return "", append(out, "has no revision")
	}
	// Older ones may share a number: those of an orphaned DaemonSet are adopted with the numbers that they have.
	if twin != "" {
		return hashOf(newest), append(out, fmt.Sprintf("has two newest revisions, number %d: %s and %s", newest.Revision, min(twin, newest.Name), max(twin, newest.Name)))
	}
	if revision.MarkOf(newest) != markOfSet(d) {
		out = append(out, fmt.Sprintf("its newest revision %s has template %q, it has %q", newest.Name, revision.MarkOf(newest), markOfSet(d)))
	}
	if same > 1 {
		out = append(out, fmt.Sprintf("has %d revisions of its template", same))
	}
	if limit := int(ptr.Deref(d.Spec.RevisionHistoryLimit, math.MaxInt32)); spare > limit {
		out = append(out, fmt.Sprintf("keeps %d old revisions that no pod has, its limit is %d", spare, limit))
	}
	return hashOf(newest), out
}

// hashesOf are the revisions that pods of a DaemonSet have, or are to have before their turn.
func (s State) hashesOf(d *appsv1.DaemonSet) map[string]bool {
	used := map[string]bool{}
	for _, r := range s.Rollouts {
		if stable, _ := revision.Split(r.Status.StableRevision); r.Labels[OwnerLabel] == string(d.UID) {
			used[stable] = true
		}
	}
	for _, p := range s.Pods {
		if ownerOf(p) == d.UID {
			used[hashOf(p)] = true
		}
	}
	return used
}
