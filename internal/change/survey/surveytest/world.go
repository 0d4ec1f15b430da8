// Package surveytest puts together clusters of objects for tests of what a survey says.
package surveytest

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// Now is what time it is in every World.
var Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Ago is a time before Now.
func Ago(d time.Duration) metav1.Time { return metav1.NewTime(Now.Add(-d)) }

// World is objects that a test puts together.
type World struct {
	t       *testing.T
	Objects survey.Objects
}

// New returns a world without objects.
func New(t *testing.T) *World {
	return &World{t: t, Objects: survey.Objects{Now: Now, Locate: time.LoadLocation}}
}

// Node adds a node that is well, with 2 CPUs, 1 GiB and room for 10 pods, unless it is edited.
func (w *World) Node(name string, edits ...func(*corev1.Node)) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name),
			Labels: map[string]string{"kubernetes.io/hostname": name}, CreationTimestamp: Ago(48 * time.Hour)},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"),
				corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("10")},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				LastTransitionTime: Ago(48 * time.Hour)}},
		},
	}
	for _, edit := range edits {
		edit(n)
	}
	w.Objects.Nodes = append(w.Objects.Nodes, n)
}

// Silent makes a node not answer for three hours.
func Silent(n *corev1.Node) {
	n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		Message: "Kubelet stopped posting node status.", LastTransitionTime: Ago(3 * time.Hour)}
}

// Label gives a node a label.
func Label(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

// Tainted gives a node a taint that few tolerate.
func Tainted(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}}
}

// DaemonSet adds a DaemonSet with a history of images, the newest last, and returns it with the hashes of its
// revisions.
func (w *World) DaemonSet(name string, images ...string) (*appsv1.DaemonSet, []string) {
	one := intstr.FromInt32(1)
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: types.UID("ds-" + name),
			Labels: map[string]string{"tier": "agent"}, Generation: int64(len(images))},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent"}}},
			},
		},
		Status: appsv1.DaemonSetStatus{ObservedGeneration: int64(len(images))},
	}
	var hashes []string
	var own []*appsv1.ControllerRevision
	for _, image := range images {
		ds.Spec.Template.Spec.Containers[0].Image = image
		plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(ds), Revisions: own})
		if err != nil {
			w.t.Fatal(err)
		}
		own = append(own, plan.Create)
		hashes = append(hashes, history.HashOf(plan.Create))
	}
	w.Objects.DaemonSets = append(w.Objects.DaemonSets, ds)
	w.Objects.Revisions = append(w.Objects.Revisions, own...)
	return ds, hashes
}

// Revise adds a revision of the DaemonSet's present template, and returns its hash.
func (w *World) Revise(ds *appsv1.DaemonSet) string {
	ds.Generation++
	ds.Status.ObservedGeneration = ds.Generation
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(ds), Revisions: w.Objects.Revisions})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Objects.Revisions = append(w.Objects.Revisions, plan.Create)
	return history.HashOf(plan.Create)
}

// Pod adds the pod of a DaemonSet on a node, ready for 50 minutes unless it is edited.
func (w *World) Pod(ds *appsv1.DaemonSet, node, revision string, edits ...func(*corev1.Pod)) {
	name := ds.Name + "-" + node
	p := survey.Candidate(&ds.Spec.Template, ds.Namespace, node)
	p.Name, p.UID, p.CreationTimestamp = name, types.UID("pod-"+name), Ago(time.Hour)
	p.Labels["controller-revision-hash"] = revision
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds,
		appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: Ago(time.Hour)},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: Ago(50 * time.Minute)},
	}
	for _, edit := range edits {
		edit(p)
	}
	w.Objects.Pods = append(w.Objects.Pods, p)
}

// ReadyAfter makes a pod one that took so long to become ready.
func ReadyAfter(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions[1].LastTransitionTime = metav1.NewTime(p.CreationTimestamp.Add(d))
	}
}

// Crashing makes a pod's container end again and again.
func Crashing(p *corev1.Pod) { CrashesAt(p, Now) }

// CrashesAt makes a pod's container end again and again, the last time two minutes before the given time.
func CrashesAt(p *corev1.Pod, now time.Time) {
	p.Status.Conditions[1].Status = corev1.ConditionFalse
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "agent", RestartCount: 7,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container=agent",
		}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 2, Reason: "Error", Message: "starting\ncannot read /etc/agent.conf\n",
			FinishedAt: metav1.NewTime(now.Add(-2 * time.Minute)),
		}},
	}}
}

// Unplaced makes a pod wait for room: it wants 400 MiB and port 9100.
func Unplaced(p *corev1.Pod) {
	p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("400Mi")}
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 9100, ContainerPort: 9100}}
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/7 nodes are available: 1 Insufficient memory, 6 node(s) didn't satisfy plugin(s) [NodeAffinity].",
	}}
}

// Other adds a pod of somebody else that takes 800 MiB and port 9100.
func (w *World) Other(node string) {
	w.Objects.Pods = append(w.Objects.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "exporter-" + node, UID: types.UID("other-" + node)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "main", Ports: []corev1.ContainerPort{{HostPort: 9100, ContainerPort: 9100}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("800Mi")}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
}

// Policy adds a policy with this spec.
func (w *World) Policy(name, spec string) {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name,
		UID: types.UID("policy-" + name), CreationTimestamp: Ago(time.Hour), Generation: 1}}
	p.Status.ObservedGeneration = 1
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		w.t.Fatal(err)
	}
	w.Objects.Policies = append(w.Objects.Policies, p)
}

// Rollout gives the DaemonSet a rollout with this status, in place of the one that it has.
func (w *World) Rollout(ds *appsv1.DaemonSet, status v1alpha1.DaemonSetRolloutStatus) *v1alpha1.DaemonSetRollout {
	r := &v1alpha1.DaemonSetRollout{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ds.Namespace, Name: ds.Name, UID: "rollout", Generation: 1,
			Labels: map[string]string{rollouts.OwnerLabel: string(ds.UID)},
		},
		Status: status,
	}
	w.Objects.Rollouts = []*v1alpha1.DaemonSetRollout{r}
	return r
}

// Fleet is a DaemonSet of two revisions with a node for each verdict, and 12 nodes more that wait.
func Fleet(t *testing.T) (*World, *appsv1.DaemonSet, []string) {
	w := New(t)
	ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4", "example.com/agent:1.5")
	old, new := revisions[0], revisions[1]
	rack := func(r string) func(*corev1.Node) { return Label("rack", r) }
	w.Node("node-crash", rack("r1"))
	w.Pod(ds, "node-crash", new, Crashing)
	w.Node("node-dead", rack("r2"), Silent)
	w.Pod(ds, "node-dead", old)
	w.Node("node-full", rack("r3"))
	w.Other("node-full")
	w.Pod(ds, "node-full", new, Unplaced)
	w.Node("node-new", rack("r4"))
	w.Pod(ds, "node-new", new)
	w.Node("node-wait", rack("r2"))
	w.Pod(ds, "node-wait", old)
	w.Node("node-db", Tainted)
	for i := range 12 {
		name := fmt.Sprintf("node-w%02d", i)
		w.Node(name)
		w.Pod(ds, name, old)
	}
	return w, ds, revisions
}
