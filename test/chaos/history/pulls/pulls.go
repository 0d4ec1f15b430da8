// Package pulls judges the pods that have nodes pull images before their turn, from the history alone: that they run
// nothing of these images, are for a daemon that is there, are no more at once than a step may have nodes without their
// daemon, and are gone in the end. Whether nodes were waited for is judged with the daemons that are taken away. It
// knows none of the product's code: what it reads is told in docs/content.md.
package pulls

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/fetches"
	"github.com/everynode/everynode/test/chaos/history/wants"
)

// Image is that of Everynode in rounds.
const Image = "everynode.io/everynode:chaos"

// program is all that the images run.
const program = "/everynode.io/end"

// The rules.
const (
	Runs   = "a pod that fetches images runs something of them"
	Whose  = "a pod that fetches images for no daemon"
	Crowd  = "more pods fetch images at once than a step may have nodes without their daemon"
	Second = "two pods fetch the same images"
)

type judge struct {
	sets     map[types.UID]*appsv1.DaemonSet
	policies map[types.UID]*v1alpha1.RolloutPolicy
	nodes    map[types.UID]bool
	most     int
	daemons  map[types.UID]*corev1.Pod
	// pods are those that fetch; allowed is the most of a DaemonSet's that anything has allowed so far.
	pods    map[types.UID]*corev1.Pod
	allowed map[types.UID]int
	had     map[types.UID]bool
	found   []history.Violation
}

// Check judges a record, and says how many pods have had their node fetch images.
func Check(r history.Record) (found []history.Violation, pulled int) {
	j := &judge{sets: map[types.UID]*appsv1.DaemonSet{}, policies: map[types.UID]*v1alpha1.RolloutPolicy{},
		nodes: map[types.UID]bool{}, daemons: map[types.UID]*corev1.Pod{}, pods: map[types.UID]*corev1.Pod{},
		allowed: map[types.UID]int{}, had: map[types.UID]bool{}}
	for i := range r.Events {
		j.event(&r.Events[i])
	}
	return j.found, len(j.had)
}

func (j *judge) event(e *history.Event) {
	uid := e.Object.GetUID()
	switch o := e.Object.(type) {
	case *corev1.Node:
		j.nodes[uid] = true
		if e.Deleted {
			delete(j.nodes, uid)
		}
		j.most = max(j.most, len(j.nodes))
	case *appsv1.DaemonSet:
		keep(j.sets, uid, o, e.Deleted)
	case *v1alpha1.RolloutPolicy:
		keep(j.policies, uid, o, e.Deleted)
	case *corev1.Pod:
		switch {
		case fetches.After(o) == "":
			if daemon.TargetOf(o) != "" && !e.Deleted {
				j.daemons[uid] = o // it stays known: a request may come late
			}
		case e.Deleted:
			delete(j.pods, uid)
		default:
			if j.pods[uid] == nil {
				j.made(e.Revision, o)
			}
			j.pods[uid] = o
			if fetches.Has(o) {
				j.had[uid] = true
			}
		}
	}
}

func keep[T any](all map[types.UID]T, uid types.UID, o T, gone bool) {
	if gone {
		delete(all, uid)
	} else {
		all[uid] = o
	}
}

func (j *judge) made(revision int64, p *corev1.Pod) {
	report := func(rule, format string, args ...any) {
		text := "pod " + p.Name + " " + fmt.Sprintf(format, args...)
		j.found = append(j.found, history.Violation{Rule: rule, Revision: revision,
			Objects: []types.UID{p.UID, fetches.After(p)}, Message: text})
	}
	if does := does(p); does != "" {
		report(Runs, "%s", does)
	}
	of, owner := j.daemons[fetches.After(p)], metav1.GetControllerOf(p)
	if of == nil || owner == nil || owner.UID != of.UID || owner.Kind != "Pod" || p.Spec.NodeName != of.Spec.NodeName {
		report(Whose, "is for pod %s, is owned by %v, and is on node %s", fetches.After(p), owner, p.Spec.NodeName)
		return
	}
	set, names := setOf(of), []string{p.Name}
	for _, o := range j.pods {
		other := j.daemons[fetches.After(o)]
		if other == nil || setOf(other) != set || o.DeletionTimestamp != nil {
			continue
		}
		names = append(names, o.Name)
		if other == of && fetches.RevisionOf(o) == fetches.RevisionOf(p) {
			report(Second, "is made beside %s", o.Name)
		}
	}
	most := j.atOnce(set)
	if len(names) > most {
		slices.Sort(names)
		report(Crowd, "makes %d: %v; %d are allowed", len(names), names, most)
	}
}

// atOnce is the most that any policy or strategy of the round has allowed so far: who was asked under another one may
// be under way still.
func (j *judge) atOnce(set types.UID) int {
	allowed := max(j.allowed[set], 1)
	if d := j.sets[set]; d != nil {
		b := wants.BudgetOf(d, j.most)
		allowed = max(allowed, b.Unavailable, b.Surge)
	}
	for _, p := range j.policies {
		for i := range p.Spec.Waves {
			allowed = max(allowed, wants.Scaled(p.Spec.Waves[i].MaxUnavailable, j.most))
		}
	}
	j.allowed[set] = allowed
	return allowed
}

// does says what a pod does that it must not; "" for nothing.
func does(p *corev1.Pod) string {
	s := &p.Spec
	for _, c := range s.Containers {
		if len(c.Command) != 1 || c.Command[0] != program || len(c.Args) > 0 || c.Lifecycle != nil {
			return fmt.Sprintf("runs %q %q of image %s", c.Command, c.Args, c.Image)
		}
	}
	for _, c := range s.InitContainers {
		if c.Image != Image {
			return "has an init container of image " + c.Image
		}
	}
	for i := range s.Volumes {
		if s.Volumes[i].EmptyDir == nil {
			return "has volume " + s.Volumes[i].Name
		}
	}
	if s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken || s.HostNetwork || s.HostPID {
		return "has a token, or a part of its node"
	}
	return ""
}

func setOf(p *corev1.Pod) types.UID {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "DaemonSet" {
		return ""
	}
	return owner.UID
}

// Unsettled tells which pods still fetch images when nobody does anything any more.
func Unsettled(s history.State) (out []string) {
	for _, p := range s.Pods {
		if fetches.After(p) != "" {
			out = append(out, "pod "+p.Name+" still fetches images")
		}
	}
	return out
}
