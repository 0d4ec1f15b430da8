// Package variants judges DaemonSetVariants, from the history alone.
//
//   - A pod is made as the variants of its revision say for its node, as that was of late, and these were stored
//     before. While they are in conflict on the node it is made by the first by name; where they cannot be had none is.
//   - A running pod is given other amounts as variants say for its node that are in no conflict there: the newest,
//     those that the rollout goes to or back to, those of another pod, or the newest as far as each was heard of.
//   - Where a policy is followed, no node gets the target before its step has begun: variants are a part of it.
//   - In the end each daemon is as its DaemonSet's variants say for its node, and these say that they apply and are in
//     no conflict.
//
// That no pod goes which is as variants say, while they are in conflict, cannot be had or are refused too, and that no
// more nodes are changed at a time than may be, package history judges by what package molds says.
package variants

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
	"github.com/everynode/everynode/test/chaos/history/wants"
)

// The rules.
const (
	Unlike  = "a pod that is not as its variants say"
	Unknown = "a pod by variants that were not stored"
	Given   = "amounts that no variants say"
	Begun   = "variants before the node's step"
)

// lag is how many revisions late a controller may be.
const lag = 400

type judge struct {
	record history.Record
	book   molds.Book
	// templates are those of a DaemonSet by their mark.
	templates map[string]*corev1.PodTemplateSpec
	pods      map[types.UID]*corev1.Pod
	rollouts  map[string][]spoken
	policies  map[types.UID][]policy
	sets      map[types.UID]*appsv1.DaemonSet
	found     []history.Violation
}

// spoken and policy are versions of a rollout and of a policy. A policy that is gone is nil.
type spoken struct {
	at int64
	is *v1alpha1.DaemonSetRollout
}

type policy struct {
	at int64
	is *v1alpha1.RolloutPolicy
}

// Check judges a record.
func Check(r history.Record) []history.Violation {
	j := &judge{record: r, templates: map[string]*corev1.PodTemplateSpec{}, pods: map[types.UID]*corev1.Pod{},
		rollouts: map[string][]spoken{}, policies: map[types.UID][]policy{}, sets: map[types.UID]*appsv1.DaemonSet{}}
	for _, e := range r.Events {
		j.book.Add(e.Revision, e.Object, e.Deleted)
		j.know(e)
	}
	if j.book.None() {
		return nil
	}
	for _, e := range r.Events {
		if p, is := e.Object.(*corev1.Pod); is {
			j.pod(e, p)
		}
	}
	return j.found
}

// know takes in what pods are judged by.
func (j *judge) know(e history.Event) {
	switch o := e.Object.(type) {
	case *appsv1.DaemonSet:
		j.templates[string(o.UID)+o.Spec.Template.Annotations[history.TemplateMark]] = &o.Spec.Template
		j.sets[o.UID] = o
	case *v1alpha1.DaemonSetRollout:
		j.rollouts[o.Name] = append(j.rollouts[o.Name], spoken{e.Revision, o})
	case *v1alpha1.RolloutPolicy:
		if e.Deleted {
			o = nil
		}
		j.policies[e.Object.GetUID()] = append(j.policies[e.Object.GetUID()], policy{e.Revision, o})
	}
}

// Resized is how often running pods were given other amounts.
func Resized(r history.Record) (n int) {
	pods := map[types.UID]*corev1.Pod{}
	for _, e := range r.Events {
		p, is := e.Object.(*corev1.Pod)
		if !is {
			continue
		}
		if was := pods[p.UID]; was != nil && molds.Resized(was, p) {
			n++
		}
		pods[p.UID] = p
	}
	return n
}

// Refused is how often nodes said that they can never give a running pod the amounts that it asked for.
func Refused(r history.Record) (n int) {
	never := map[types.UID]bool{}
	for _, e := range r.Events {
		p, is := e.Object.(*corev1.Pod)
		if !is {
			continue
		}
		if molds.Infeasible(p) && !never[p.UID] {
			n++
		}
		never[p.UID] = molds.Infeasible(p)
	}
	return n
}

func (j *judge) report(rule string, at int64, p *corev1.Pod, format string, args ...any) {
	j.found = append(j.found, history.Violation{
		Rule: rule, Revision: at, Objects: []types.UID{p.UID, owner(p)}, Message: fmt.Sprintf(format, args...),
	})
}

func owner(o metav1.Object) types.UID {
	if ref := metav1.GetControllerOf(o); ref != nil && ref.Kind == "DaemonSet" {
		return ref.UID
	}
	return ""
}

// pod judges a change of a pod.
func (j *judge) pod(e history.Event, p *corev1.Pod) {
	was := j.pods[p.UID]
	j.pods[p.UID] = p
	if e.Deleted {
		delete(j.pods, p.UID)
	}
	template := j.templates[string(owner(p))+p.Annotations[history.TemplateMark]]
	switch {
	case e.Deleted, owner(p) == "", template == nil:
	case was == nil && p.DeletionTimestamp == nil:
		j.made(e, p, template)
		j.turn(e, p)
	case was != nil && molds.Resized(was, p):
		j.given(e, was, p, template)
	case was != nil && revision.VariantsOf(was.Labels[revision.Label]) != revision.VariantsOf(p.Labels[revision.Label]):
		j.turn(e, p)
	}
}

// made judges a pod when it is made.
func (j *judge) made(e history.Event, p *corev1.Pod, t *corev1.PodTemplateSpec) {
	of := p.Labels[revision.Label]
	stored, known := j.book.Stored(of, e.Revision)
	if !known {
		j.report(Unknown, e.Revision, p, "pod %s was made of revision %s, whose variants were not stored", p.Name, of)
		return
	}
	why := ""
	nodes := j.book.Nodes(daemon.TargetOf(p), e.Revision-lag, e.Revision)
	for _, n := range nodes {
		o := molds.For(t, stored, n)
		if !o.None && o.Looks == molds.OfPod(p) {
			return
		}
		why = fmt.Sprintf("%s (%s)", o.Looks, o.Why)
	}
	if len(nodes) > 0 {
		j.report(Unlike, e.Revision, p, "pod %s on node %s was made of revision %s with %s, and that says %s",
			p.Name, daemon.TargetOf(p), of, molds.OfPod(p), why)
	}
}

// given judges the amounts that a running pod is given: somebody's that are its DaemonSet's, or were.
func (j *judge) given(e history.Event, was, p *corev1.Pod, t *corev1.PodTemplateSpec) {
	nodes := j.book.Nodes(daemon.TargetOf(p), 0, e.Revision)
	says := func(all []molds.Variant) bool {
		return slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
			o := molds.For(t, all, n)
			return !o.Keeps && amounts(o.Looks) == amounts(molds.OfPod(p))
		})
	}
	if slices.ContainsFunc(j.mayGo(e, p), says) || j.book.Mixed(owner(p), e.Revision-lag, e.Revision, says) {
		return
	}
	j.report(Given, e.Revision, p, "pod %s on node %s had %s and was given %s, as no variants say for that node",
		p.Name, daemon.TargetOf(p), molds.OfPod(was), molds.OfPod(p))
}

// mayGo are the variants that a pod can have been on its way to: the newest, those that its DaemonSet's rollout goes to
// or back to, and those that other pods of it have.
func (j *judge) mayGo(e history.Event, p *corev1.Pod) (out [][]molds.Variant) {
	out = j.book.Newest(owner(p), e.Revision-lag, e.Revision)
	var of []string
	if d := j.sets[owner(p)]; d != nil {
		for _, r := range j.seen(d, e.Revision-lag, e.Revision) {
			of = append(of, r.Status.StableRevision, r.Status.TargetRevision)
		}
	}
	for _, o := range j.pods {
		if owner(o) == owner(p) {
			of = append(of, revision.Of(o))
		}
	}
	for _, r := range of {
		if stored, known := j.book.Stored(r, e.Revision); known && r != "" {
			out = append(out, stored)
		}
	}
	return out
}

func amounts(l molds.Looks) [3]int64 { return [3]int64{l.CPU, l.Memory, l.Limit} }

// turn judges that a pod is of variants that its node was to have.
func (j *judge) turn(e history.Event, p *corev1.Pod) {
	d := j.sets[owner(p)]
	low := e.Revision - lag
	if d == nil {
		return
	}
	seen := j.seen(d, low, e.Revision)
	of := revision.Of(p)
	for _, r := range seen {
		s := &r.Status
		stays := s.StableRevision == "" || s.TargetRevision == "" || s.StableRevision == s.TargetRevision
		if stays || s.TargetRevision != of || s.StableRevision == of || history.PolicyGone(r) {
			return
		}
		if !j.awaits(r, d, p, low, e.Revision) {
			return
		}
	}
	if len(seen) > 0 {
		j.report(Begun, e.Revision, p, "pod %s on node %s is of the target %s, and the node's step has not begun",
			p.Name, daemon.TargetOf(p), of)
	}
}

// seen are the versions of a DaemonSet's rollout that can have been known, and the first that was written then.
func (j *judge) seen(d *appsv1.DaemonSet, low, high int64) (out []*v1alpha1.DaemonSetRollout) {
	all := j.rollouts[d.Name]
	for i, s := range all {
		if s.is.Labels[history.OwnerLabel] != string(d.UID) {
			continue
		}
		if i+1 == len(all) || all[i+1].at > low {
			out = append(out, s.is)
		}
		if s.at > high && s.is.Status.TargetRevision != "" {
			return out // what it had in mind may be in the next that it wrote
		}
	}
	return out
}

// Unsettled says which daemons are not as variants say, once nobody does anything any more, and what else is not.
func Unsettled(s history.State) (out []string) {
	for _, v := range s.Variants {
		applies := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VariantApplies)
		if v.Status.ObservedGeneration != v.Generation {
			out = append(out, "variant "+v.Name+" does not say what is so now")
		} else if applies != nil && applies.Status != metav1.ConditionTrue {
			out = append(out, "variant "+v.Name+" does not apply: "+applies.Message)
		}
		if meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.VariantConflict) {
			out = append(out, "variant "+v.Name+" is in conflict")
		}
	}
	for _, d := range s.Sets {
		if d.DeletionTimestamp == nil && d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
			out = append(out, unlike(s, d)...)
		}
	}
	slices.Sort(out)
	return out
}

// unlike names the daemons that are not as the variants of their DaemonSet say.
func unlike(s history.State, d *appsv1.DaemonSet) (out []string) {
	var all []molds.Variant
	for _, v := range s.Variants {
		if molds.Chooses(v.Spec.DaemonSets, d.Labels) {
			all = append(all, molds.VariantOf(v))
		}
	}
	if len(s.Variants) == 0 && !slices.ContainsFunc(s.Pods, revision.Varied) {
		return nil
	}
	for _, n := range s.Nodes {
		o := molds.For(&d.Spec.Template, all, n)
		for _, p := range s.Pods {
			if owner(p) != d.UID || daemon.TargetOf(p) != n.Name || wants.Judge(d, n) != wants.ShouldRun {
				continue
			}
			switch {
			case o.Keeps:
				out = append(out, fmt.Sprintf("node %s keeps its %s: %s", n.Name, d.Name, o.Why))
			case !o.Fits(molds.OfPod(p)):
				has := molds.OfPod(p)
				out = append(out, fmt.Sprintf("pod %s on node %s has %s, and is to have %s", p.Name, n.Name, has, o.Looks))
			case !molds.Holds(p):
				out = append(out, fmt.Sprintf("pod %s on node %s does not hold what it is to have", p.Name, n.Name))
			}
		}
	}
	return out
}
