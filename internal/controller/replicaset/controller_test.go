package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var (
	noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	key  = ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}}
)

// journal is a writer and a recorder that remember. What is written does not reach
// the cache by itself.
type journal struct {
	mu      sync.Mutex
	cache   client.Client
	created []*corev1.Pod
	deleted []string
	patched []string
	status  *appsv1.ReplicaSetStatus
	events  []string
	live    *appsv1.ReplicaSet
	// fail may refuse a write, named by its verb.
	fail func(verb string) error
}

func (j *journal) refuse(verb string) error {
	if j.fail == nil {
		return nil
	}
	return j.fail(verb)
}

// CreatePod implements writer.
func (j *journal) CreatePod(_ context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.refuse("create"); err != nil {
		return nil, err
	}
	p = p.DeepCopy()
	p.Name = fmt.Sprint(p.GenerateName, len(j.created))
	p.UID, p.ResourceVersion = types.UID(p.Name), "100"
	j.created = append(j.created, p)
	return p, nil
}

// DeletePod implements writer.
func (j *journal) DeletePod(_ context.Context, _, name string, uid types.UID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.refuse("delete"); err != nil {
		return err
	}
	j.deleted = append(j.deleted, name+"/"+string(uid))
	return nil
}

// PatchPod implements writer.
func (j *journal) PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	verb := "adopt"
	if strings.Contains(string(patch), "$patch") {
		verb = "release"
	}
	j.patched = append(j.patched, verb+" "+name)
	if err := j.refuse(verb); err != nil {
		return nil, err
	}
	p := &corev1.Pod{}
	if err := j.cache.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, p); err != nil {
		return nil, err
	}
	if verb == "adopt" {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j.live, replicaSets.gvk)}
	}
	return p, nil
}

// GetSet implements writer.
func (j *journal) GetSet(context.Context, string, string) (*appsv1.ReplicaSet, error) {
	return j.live, j.refuse("get")
}

// UpdateStatus implements writer.
func (j *journal) UpdateStatus(_ context.Context, set *appsv1.ReplicaSet) error {
	if err := j.refuse("status"); err != nil {
		return err
	}
	j.status = &set.Status
	return nil
}

// Eventf implements Recorder.
func (j *journal) Eventf(_ runtime.Object, kind, reason, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, kind+" "+reason+" "+fmt.Sprintf(format, args...))
}

func aSet(replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
	}
}

func aPod(name string, owner *appsv1.ReplicaSet) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, replicaSets.gvk)}
	}
	return p
}

func setup(objects ...client.Object) (*reconciler, *journal) {
	cache := crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, ownerIndex, byOwner).WithIndex(&appsv1.ReplicaSet{}, ownerIndex, byOwner).Build()
	j := &journal{cache: cache, live: aSet(0)}
	return newReconciler(cache, replicaSets, j, j, testingclock.NewFakePassiveClock(noon)), j
}

func reconcileOnce(t *testing.T, r *reconciler) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func TestStaleCacheCreatesNothingTwice(t *testing.T) {
	r, j := setup(aSet(3))
	for range 3 {
		reconcileOnce(t, r)
	}
	if len(j.created) != 3 {
		t.Fatalf("%d pods were created, want 3", len(j.created))
	}
	if p := j.created[0]; p.GenerateName != "web-" || p.Namespace != "ns" || p.Labels["app"] != "web" || metav1.GetControllerOf(p).UID != "set" {
		t.Errorf("created %+v", p.ObjectMeta)
	}
	if j.status.Replicas != 3 {
		t.Errorf("the status has %d replicas before the cache knows them, want 3", j.status.Replicas)
	}
	// One arrives in the cache, one came and went, and the third is still on its way.
	if err := j.cache.Create(t.Context(), func() *corev1.Pod { p := j.created[0].DeepCopy(); p.ResourceVersion = ""; return p }()); err != nil {
		t.Fatal(err)
	}
	r.podHandler().Delete(t.Context(), event.DeleteEvent{Object: j.created[1]}, &collected{})
	reconcileOnce(t, r)
	if len(j.created) != 4 {
		t.Errorf("%d pods were created, want 4: one in place of that which went", len(j.created))
	}
}

func TestStaleCacheDeletesNothingTwice(t *testing.T) {
	set := aSet(1)
	r, j := setup(set, aPod("a", set), aPod("b", set), aPod("c", set))
	for range 3 {
		reconcileOnce(t, r)
	}
	slices.Sort(j.deleted)
	if got := fmt.Sprint(j.deleted); got != "[a/a b/b]" {
		t.Errorf("deleted %s, want a and b, once, by their UIDs", got)
	}
	if s := j.status; s.Replicas != 1 || *s.TerminatingReplicas != 2 {
		t.Errorf("the status has %d replicas and %d terminating, want 1 and 2", s.Replicas, *s.TerminatingReplicas)
	}
}

func TestAdoptAndRelease(t *testing.T) {
	set := aSet(2)
	away, foreign := aPod("away", set), aPod("foreign", &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "earlier"}})
	away.Labels = map[string]string{"app": "other"}
	r, j := setup(set, aPod("own", set), aPod("free", nil), away, foreign)
	j.live = set
	for range 2 { // the cache still shows free without its owner
		reconcileOnce(t, r)
	}
	if got := fmt.Sprint(j.patched[:2]); got != "[release away adopt free]" && got != "[adopt free release away]" {
		t.Errorf("patched %s, want free adopted and away released", got)
	}
	if len(j.created)+len(j.deleted) != 0 || j.status.Replicas != 2 || slices.Contains(j.patched[2:], "adopt free") {
		t.Errorf("created %d, deleted %d, %d replicas, patched %s; want own and free, and nothing else done", len(j.created), len(j.deleted), j.status.Replicas, j.patched)
	}
	r, j = setup(set, aPod("free", nil))
	j.live = aSet(2)
	j.live.UID = "later"
	if _, err := r.Reconcile(t.Context(), key); err == nil || !strings.Contains(err.Error(), "got uid later, wanted set") || len(j.patched)+len(j.created) != 0 {
		t.Errorf("%v, patched %s; want no adoption by a set that is gone", err, j.patched)
	}
}

func TestCreationStartsSlowly(t *testing.T) {
	r, j := setup(aSet(100))
	tries := 0
	j.fail = func(verb string) error {
		if verb != "create" {
			return nil
		}
		tries++
		if tries > 4 {
			return errors.New("no quota")
		}
		return nil
	}
	if _, err := r.Reconcile(t.Context(), key); err == nil || !strings.Contains(err.Error(), "create a pod of ReplicaSet ns/web: no quota") {
		t.Errorf("the error is %v", err)
	}
	// One, two, four, of which three failed; then no more.
	if tries != 7 || len(j.created) != 4 {
		t.Errorf("%d tries and %d pods, want 7 and 4", tries, len(j.created))
	}
	if c := j.status.Conditions; len(c) != 1 || c[0].Reason != "FailedCreate" || j.status.Replicas != 4 {
		t.Errorf("the status is %+v", j.status)
	}
	slices.Sort(j.events)
	if want := "Warning FailedCreate Error creating: no quota"; j.events[len(j.events)-1] != want || j.events[0] != "Normal SuccessfulCreate Created pod: web-0" || len(j.events) != 7 {
		t.Errorf("the events are %q", j.events)
	}
}

func TestRefusedWrites(t *testing.T) {
	gone := apierrors.NewNotFound(corev1.Resource("pods"), "a")
	ending := apierrors.NewForbidden(corev1.Resource("pods"), "a", nil)
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, c := range []struct {
		name, verb string
		err        error
		want       string
	}{
		{"the pod is gone already", "delete", gone, ""},
		{"the pod is another by now", "delete", apierrors.NewConflict(corev1.Resource("pods"), "a", errors.New("uid")), ""},
		{"the pod stays", "delete", errors.New("no"), "delete pod ns/a of ReplicaSet ns/web: no"},
		{"the namespace ends", "create", ending, ""},
		{"somebody else wrote the status", "status", apierrors.NewConflict(appsv1.Resource("replicasets"), "web", errors.New("version")), ""},
		{"the status is refused", "status", errors.New("no"), "update the status of ReplicaSet ns/web: no"},
	} {
		set := aSet(0)
		objects := []client.Object{set, aPod("a", set)}
		if c.verb == "create" {
			set.Spec.Replicas = ptr.To[int32](2)
		}
		r, j := setup(objects...)
		j.fail = func(verb string) error {
			if verb == c.verb {
				return c.err
			}
			return nil
		}
		_, err := r.Reconcile(t.Context(), key)
		if got := fmt.Sprint(err); got != c.want && (c.want != "" || err != nil) {
			t.Errorf("%s: %s, want %q", c.name, got, c.want)
		}
	}
	r, _ := setup()
	if _, err := r.Reconcile(t.Context(), key); err != nil {
		t.Errorf("a set that is gone: %v", err)
	}
}

func TestAskedAgainWhenPodsBecomeAvailable(t *testing.T) {
	set := aSet(1)
	set.Spec.MinReadySeconds = 30
	p := aPod("a", set)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-10 * time.Second))}}
	r, _ := setup(set, p)
	if result, err := r.Reconcile(t.Context(), key); err != nil || result.RequeueAfter != 20*time.Second {
		t.Errorf("%+v, %v; want to be asked again in 20 s", result, err)
	}
}

// collected is a queue that only remembers what was added to it.
type collected struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	names []string
}

// Add implements workqueue.TypedInterface.
func (c *collected) Add(r reconcile.Request) { c.names = append(c.names, r.Name) }

func TestOnlySetsConcernedAreEnqueued(t *testing.T) {
	set, other := aSet(1), aSet(1)
	other.Name, other.UID, other.Spec.Selector.MatchLabels = "other", "other", map[string]string{"app": "other"}
	r, _ := setup(set, other)
	change := func(f func(p *corev1.Pod)) *corev1.Pod {
		p := aPod("a", set)
		f(p)
		return p
	}
	same, free := aPod("a", set), aPod("a", nil)
	for _, c := range []struct {
		name     string
		old, now *corev1.Pod
		want     string
	}{
		{"a pod of the set", nil, same, "web"},
		{"a pod that nobody has", nil, free, "web"},
		{"a pod that nobody wants", nil, change(func(p *corev1.Pod) { p.OwnerReferences, p.Labels = nil, nil }), ""},
		{"a pod without a set that is going", nil, change(func(p *corev1.Pod) { p.OwnerReferences, p.DeletionTimestamp = nil, &metav1.Time{} }), ""},
		{"a pod of somebody else", nil, change(func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }), ""},
		{"nothing of interest", same, change(func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }), ""},
		{"it becomes ready", same, change(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}), "web web"},
		{"it is over", same, change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), "web web"},
		{"it is going", same, change(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), "web web"},
		{"it is labelled away", same, change(func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }), "web web"},
		{"it is let go, and another may want it", same, change(func(p *corev1.Pod) { p.OwnerReferences, p.Labels = nil, map[string]string{"app": "other"} }), "web other"},
		{"it is taken", free, same, "web"},
		{"it is gone", same, nil, "web"},
	} {
		q, h := &collected{}, r.podHandler()
		switch {
		case c.old == nil:
			h.Create(t.Context(), event.CreateEvent{Object: c.now}, q)
		case c.now == nil:
			h.Delete(t.Context(), event.DeleteEvent{Object: c.old}, q)
		default:
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.now}, q)
		}
		if got := strings.Join(q.names, " "); got != c.want {
			t.Errorf("%s: enqueued %q, want %q", c.name, got, c.want)
		}
	}
}

// A ReplicationController is kept by the same rules, its pods are its own, and its status has its own form.
func TestReplicationControllers(t *testing.T) {
	labels := map[string]string{"app": "web"}
	c := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set", Generation: 3},
		Spec: corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](2), Selector: labels, Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}}}
	going, foreign := aPod("going", nil), aPod("foreign", aSet(1))
	going.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c, replicationControllers.gvk)}
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: noon}, []string{"example.com/wait"}
	foreign.OwnerReferences[0].UID = "other"
	cache := crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(c, going, foreign).
		WithIndex(&corev1.Pod{}, ownerIndex, byOwner).WithIndex(&corev1.ReplicationController{}, ownerIndex, byOwner).Build()
	j := &journal{cache: cache, live: asSet(c)}
	r := newReconciler(cache, replicationControllers, j, j, testingclock.NewFakePassiveClock(noon))
	reconcileOnce(t, r)
	if len(j.created) != 2 || metav1.GetControllerOf(j.created[0]).Kind != "ReplicationController" || metav1.GetControllerOf(j.created[0]).APIVersion != "v1" {
		t.Fatalf("created %v", j.created)
	}
	if s := j.status; s == nil || s.Replicas != 2 || s.FullyLabeledReplicas != 2 || s.ObservedGeneration != 3 || s.TerminatingReplicas != nil {
		t.Fatalf("the status is %+v", j.status)
	}
	// What was written is no news.
	set := asSet(c)
	set.Status = *j.status
	set.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Other", Status: "True", Reason: "R", Message: "m"}}
	written := withStatus(set)
	if got := asSet(written); !apiequality.Semantic.DeepEqual(got.Status, set.Status) {
		t.Errorf("the status becomes %+v", got.Status)
	}
	c.Status = written.Status
	if err := cache.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	j.status = nil
	reconcileOnce(t, r)
	if j.status != nil {
		t.Errorf("the status was written again: %+v", j.status)
	}
	q := &collected{}
	r.podHandler().Create(t.Context(), event.CreateEvent{Object: foreign}, q)
	if len(q.names) != 0 {
		t.Errorf("a ReplicaSet's pod enqueued %s", q.names)
	}
}
