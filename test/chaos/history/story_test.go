package history

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// story makes up a history. Between two things that happen so much time passes
// that the controller knows of the first.
type story struct {
	record Record
	now    time.Time
	set    *appsv1.DaemonSet
}

// began has a DaemonSet "agent" and nodes n1 to n4.
func began(change ...func(*appsv1.DaemonSet)) *story {
	s := &story{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), set: &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "agent", Generation: 1},
		Spec: appsv1.DaemonSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{wish.UserKey + "app": "agent"}},
			RevisionHistoryLimit: ptr.To(int32(10)),
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{TemplateMark: "t1"}}},
		},
	}}
	unavailable(1)(s.set)
	for _, c := range change {
		c(s.set)
	}
	for i := range 4 {
		name := fmt.Sprintf("n%d", i+1)
		s.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}})
	}
	s.put(s.set)
	s.wrote(s.set)
	return s
}

// put appends a change.
func (s *story) put(o metav1.Object) {
	s.now = s.now.Add(10 * time.Second)
	s.record.Events = append(s.record.Events, Event{Revision: s.next(), Object: copied(o)})
}

func (s *story) gone(o metav1.Object) {
	s.put(o)
	s.record.Events[len(s.record.Events)-1].Deleted = true
}

func (s *story) next() int64 { return int64(len(s.record.Events)+1) * 2 * lag }

// wrote puts the last change into the journal, as acknowledged.
func (s *story) wrote(o metav1.Object) {
	kind := map[bool]string{true: "DaemonSet", false: "Pod"}[o.GetUID() == "agent"]
	s.record.Writes = append(s.record.Writes, Write{
		Kind: kind, Name: o.GetName(), UID: o.GetUID(), Acknowledged: true, Revision: s.record.Events[len(s.record.Events)-1].Revision, Wish: wish.Of(o),
	})
}

func copied(o metav1.Object) metav1.Object {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return o.DeepCopy()
	case *corev1.Node:
		return o.DeepCopy()
	case *appsv1.ControllerRevision:
		return o.DeepCopy()
	case *v1alpha1.RolloutPolicy:
		return o.DeepCopy()
	case *v1alpha1.DaemonSetRollout:
		return o.DeepCopy()
	case *corev1.ConfigMap:
		return o.DeepCopy()
	}
	return o.(*corev1.Pod).DeepCopy()
}

// edit changes the DaemonSet, in a user's name, and lets the controller observe it.
func (s *story) edit(change func(*appsv1.DaemonSet)) {
	s.set.Generation++
	change(s.set)
	s.put(s.set)
	s.wrote(s.set)
	s.set.Status.ObservedGeneration = s.set.Generation
	s.put(s.set)
}

func template(mark string) func(*appsv1.DaemonSet) {
	return func(d *appsv1.DaemonSet) { d.Spec.Template.Annotations[TemplateMark] = mark }
}

func rolling(unavailable, surge int32) func(*appsv1.DaemonSet) {
	return func(d *appsv1.DaemonSet) {
		d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
			MaxUnavailable: ptr.To(intstr.FromInt32(unavailable)), MaxSurge: ptr.To(intstr.FromInt32(surge)),
		}}
	}
}

func unavailable(n int32) func(*appsv1.DaemonSet) { return rolling(n, 0) }

func surge(n int32) func(*appsv1.DaemonSet) { return rolling(0, n) }

func onDelete(d *appsv1.DaemonSet) {
	d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
}

// pod is a daemon pod of the present template.
func (s *story) pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(s.now),
			Labels:          map[string]string{wish.UserKey + "app": "agent", appsv1.ControllerRevisionHashLabelKey: "hash-" + markOfSet(s.set)},
			Annotations:     map[string]string{TemplateMark: markOfSet(s.set)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// runs creates a pod and makes it ready.
func (s *story) runs(name, node string) *corev1.Pod {
	p := s.pod(name, node)
	s.put(p)
	s.ready(p)
	return p
}

func (s *story) ready(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.now)}}
	s.put(p)
}

// deleted has the controller delete a pod, which stays until it is gone.
func (s *story) deleted(p *corev1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(s.now.Add(30*time.Second))), ptr.To(int64(30))
	s.put(p)
}

func (s *story) fleet() (pods []*corev1.Pod) {
	for i := range 4 {
		pods = append(pods, s.runs(fmt.Sprintf("old-%d", i+1), fmt.Sprintf("n%d", i+1)))
	}
	return pods
}

// revision is the one of the present template.
func (s *story) revision(number int64) *appsv1.ControllerRevision {
	mark := markOfSet(s.set)
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: "agent-" + mark, UID: types.UID("revision-" + mark), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "hash-" + mark},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Revision: number,
	}
	r.Data.Raw = fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, TemplateMark, mark)
	return r
}

// violations are what the judge finds.
func violations(r Record) []Violation {
	found, _ := Check(r)
	return found
}
