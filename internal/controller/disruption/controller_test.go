package disruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// journal is a writer and a recorder that remember.
type journal struct {
	reader  client.Client
	err     error
	written []policyv1.PodDisruptionBudgetStatus
	events  []string
}

// UpdateStatus implements writer.
func (j *journal) UpdateStatus(ctx context.Context, b *policyv1.PodDisruptionBudget) error {
	if j.err != nil {
		return j.err
	}
	j.written = append(j.written, b.Status)
	return j.reader.Status().Update(ctx, b.DeepCopy())
}

// Eventf implements Recorder.
func (j *journal) Eventf(object runtime.Object, _, reason, format string, args ...any) {
	j.events = append(j.events, object.(client.Object).GetName()+" "+reason+": "+fmt.Sprintf(format, args...))
}

func setup(objects ...client.Object) (*reconciler, *journal) {
	reader := crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithStatusSubresource(&policyv1.PodDisruptionBudget{}).WithObjects(objects...).Build()
	j := &journal{reader: reader}
	return newReconciler(reader, j, Config{Events: j, Clock: testingclock.NewFakePassiveClock(noon)}), j
}

func controlledBy(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID(name), Controller: ptr.To(true)}}
}

func aPod(namespace, name string, owners ...metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "a"}, OwnerReferences: owners}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

func aBudget(name string, maxUnavailable string, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Generation: 1}}
	b.Spec = policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.Parse(maxUnavailable)), Selector: selector}
	return b
}

func chosen(value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": value}}
}

var key = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "b"}}

func TestReconcileCountsPodsOfEveryController(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "web"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", UID: "web-1", OwnerReferences: controlledBy("Deployment", "web")}}
	agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agents", UID: "agents"}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2}}
	other := aPod("ns", "unselected")
	other.Labels = nil
	b := aBudget("b", "1", chosen("a"))
	b.Status.DisruptedPods = map[string]metav1.Time{"one": metav1.NewTime(noon.Add(-time.Minute))}
	r, j := setup(b, web, set, agents, other, aPod("elsewhere", "foreign"),
		aPod("ns", "one", controlledBy("DaemonSet", "agents")...), aPod("ns", "two", controlledBy("DaemonSet", "agents")...),
		aPod("ns", "three", controlledBy("ReplicaSet", "web-1")...), aPod("ns", "four", controlledBy("ReplicaSet", "web-1")...))
	for range 2 { // the second finds nothing to write
		result, err := r.Reconcile(t.Context(), key)
		if err != nil || result.RequeueAfter != time.Minute {
			t.Fatalf("%+v, %v; want to be asked again when the eviction of one expires", result, err)
		}
	}
	if len(j.written) != 1 {
		t.Fatalf("%d statuses were written, want 1", len(j.written))
	}
	if s := j.written[0]; s.ExpectedPods != 4 || s.DesiredHealthy != 3 || s.CurrentHealthy != 3 || s.DisruptionsAllowed != 0 || s.ObservedGeneration != 1 {
		t.Errorf("wrote %+v; want 3 of 3 healthy of 4, none to spare", s)
	}
	if len(j.events) != 0 {
		t.Errorf("events %q, want none", j.events)
	}
}

func TestReconcileTellsUsers(t *testing.T) {
	late := aBudget("b", "1", chosen("a"))
	late.Status.DisruptedPods = map[string]metav1.Time{"p": metav1.NewTime(noon.Add(-time.Hour))}
	for _, c := range []struct {
		name    string
		budget  *policyv1.PodDisruptionBudget
		pods    []client.Object
		want    []string
		matched bool
	}{
		{"no pods", aBudget("b", "1", chosen("a")), nil, []string{"b NoPods: No matching pods found"}, false},
		{"a selector that is not there", aBudget("b", "1", nil), []client.Object{aPod("ns", "p")}, []string{"b NoPods: No matching pods found"}, false},
		{"an empty selector", aBudget("b", "1", &metav1.LabelSelector{}), []client.Object{aPod("ns", "p")}, []string{
			"b UnmanagedPods: 1 of the selected pods have no controller, so nobody replaces them: set minAvailable to a number to protect them"}, true},
		{"an unknown owner", aBudget("b", "1", chosen("a")), []client.Object{aPod("ns", "p", controlledBy("ReplicaSet", "absent")...)}, []string{
			`b CalculateExpectedPodCountFailed: Failed to calculate the number of expected pods: found no controllers for pod "p"`}, false},
		{"an eviction that never was", late, []client.Object{aPod("ns", "p")}, []string{
			"b UnmanagedPods: 1 of the selected pods have no controller, so nobody replaces them: set minAvailable to a number to protect them",
			"p NotDeleted: Pod was expected by PDB ns/b to be deleted but it wasn't"}, true},
	} {
		r, j := setup(append(c.pods, c.budget)...)
		for range 2 { // told once
			if _, err := r.Reconcile(t.Context(), key); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if !slices.Equal(j.events, c.want) {
			t.Errorf("%s: events %q, want %q", c.name, j.events, c.want)
		}
		if got := j.written[0].CurrentHealthy > 0; got != c.matched {
			t.Errorf("%s: pods found %v, want %v", c.name, got, c.matched)
		}
	}
}

func TestFailedWrites(t *testing.T) {
	resource := policyv1.Resource("poddisruptionbudgets")
	for _, c := range []struct {
		name  string
		err   error
		again bool
	}{
		{"somebody was faster", apierrors.NewConflict(resource, "b", errors.New("changed")), false},
		{"the budget is gone", apierrors.NewNotFound(resource, "b"), false},
		{"the server is busy", apierrors.NewServiceUnavailable("busy"), true},
	} {
		r, j := setup(aBudget("b", "1", chosen("a")))
		j.err = c.err
		_, err := r.Reconcile(t.Context(), key)
		if (err != nil) != c.again || c.again && !strings.Contains(err.Error(), "ns/b") || len(j.events) != 0 {
			t.Errorf("%s: %v, events %q; want an error %v and no events", c.name, err, j.events, c.again)
		}
	}
	r, j := setup()
	if _, err := r.Reconcile(t.Context(), key); err != nil || len(j.written) != 0 {
		t.Errorf("a deleted budget: %v, wrote %v", err, j.written)
	}
}

// collected is a queue that only remembers what was added to it.
type collected struct {
	queue
	names []string
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (c *collected) AddAfter(r reconcile.Request, _ time.Duration) { c.names = append(c.names, r.Name) }

func TestOnlyBudgetsConcernedAreEnqueued(t *testing.T) {
	fixed := aBudget("fixed", "1", chosen("b"))
	fixed.Spec.MaxUnavailable, fixed.Spec.MinAvailable = nil, ptr.To(intstr.FromInt32(1))
	elsewhere := aBudget("elsewhere", "1", chosen("a"))
	elsewhere.Namespace = "elsewhere"
	r, _ := setup(aBudget("all", "1", &metav1.LabelSelector{}), aBudget("none", "1", nil), aBudget("a", "1", chosen("a")), fixed, elsewhere)
	pod := func(change func(p *corev1.Pod)) client.Object {
		p := aPod("ns", "p")
		change(p)
		return p
	}
	same := pod(func(*corev1.Pod) {})
	set := func(desired int32, ready int32) client.Object {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d"},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: desired, NumberReady: ready}}
	}
	scaled := func(replicas int32, owners ...metav1.OwnerReference) client.Object {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", OwnerReferences: owners}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
	}
	deployment := func(replicas int32) client.Object {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
	}
	const both, owned, nobody = "a all", "a all none", ""
	for _, c := range []struct {
		name     string
		old, now client.Object
		want     string
	}{
		{"another pod", nil, same, both},
		{"a pod without labels", nil, pod(func(p *corev1.Pod) { p.Labels = nil }), "all"},
		{"a pod is gone", same, nil, both},
		{"labels move", same, pod(func(p *corev1.Pod) { p.Labels = map[string]string{"app": "b"} }), "a all fixed"},
		{"not ready", same, pod(func(p *corev1.Pod) { p.Status.Conditions = nil }), both},
		{"being deleted", same, pod(func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }), both},
		{"adopted", same, pod(func(p *corev1.Pod) { p.OwnerReferences = controlledBy("DaemonSet", "d") }), both},
		{"made again unseen", same, pod(func(p *corev1.Pod) { p.UID = "2" }), both},
		{"nothing of interest", same, pod(func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1"; p.ResourceVersion = "7" }), nobody},
		{"a DaemonSet wants more pods", set(1, 1), set(2, 1), owned},
		{"a DaemonSet has more pods", set(2, 1), set(2, 2), nobody},
		{"a controller appears", nil, set(0, 0), owned},
		{"a controller is gone", scaled(1), nil, owned},
		{"a ReplicaSet is scaled", scaled(1), scaled(2), owned},
		{"a ReplicaSet is adopted", scaled(1), scaled(1, controlledBy("Deployment", "d")...), owned},
		{"a Deployment is scaled", deployment(1), deployment(3), owned},
		{"a Deployment is unchanged", deployment(1), deployment(1), nobody},
	} {
		h := r.ownerHandler()
		if _, ok := cmp.Or(c.now, c.old).(*corev1.Pod); ok {
			h = r.podHandler()
		}
		q := &collected{}
		switch {
		case c.old == nil:
			h.Create(t.Context(), event.CreateEvent{Object: c.now}, q)
		case c.now == nil:
			h.Delete(t.Context(), event.DeleteEvent{Object: c.old}, q)
		default:
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}, q)
		}
		slices.Sort(q.names)
		if got := strings.Join(q.names, " "); got != c.want {
			t.Errorf("%s: enqueued %q, want %q", c.name, got, c.want)
		}
	}
}
