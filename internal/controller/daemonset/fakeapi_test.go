package daemonset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/objects/pod"
)

// fakeAPI is an API server in memory: a store with resource versions, watches
// that deliver in order, and a node agent that starts and stops pods at once
// unless told otherwise.
type fakeAPI struct {
	mu       sync.Mutex
	version  int64
	objects  map[string]map[string]client.Object // kind -> namespace/name
	handlers map[string][]toolscache.ResourceEventHandler
	events   chan func()

	// refuseCreate, when it returns an error, fails a pod's creation.
	refuseCreate func(*corev1.Pod) error
	// started may change what a pod says that has just started.
	started func(*corev1.Pod)
	// holdCreate, when set, has a creation arrive only when what it returns is
	// closed.
	holdCreate func() <-chan struct{}
	// refuseDelete, when it returns an error, fails a pod's deletion.
	refuseDelete func() error
	// deleting, when set, sees each pod that is deleted.
	deleting func(*corev1.Pod)
	// loseAnswer, when it returns true, has a creation succeed and report a
	// failure all the same.
	loseAnswer func() bool
	// twins are creations that met a pod of the same DaemonSet on the node.
	twins []string
	// lag is how long every tenth event waits on its way to the watchers.
	lag atomic.Int64
	// manualStart and manualStop leave starting and stopping to the test.
	manualStart, manualStop bool
	createCalls             int
	// manualResize leaves the giving of other amounts to the test, refuseResize may refuse what asks for it, resizes counts.
	manualResize bool
	refuseResize func() error
	resizes      int
	// refusePatch may refuse what changes a pod otherwise.
	refusePatch func(patch []byte) error
	// forgetConditions drops the conditions of every status that is written.
	forgetConditions bool
	statusWrites     map[string]int // by DaemonSet
	// keepRevisions refuses the deletion of revisions, revisionsKept counts.
	keepRevisions bool
	revisionsKept int
}

func newFakeAPI(t *testing.T) *fakeAPI {
	a, stop := startFakeAPI()
	t.Cleanup(stop)
	return a
}

func startFakeAPI() (a *fakeAPI, stop func()) {
	a = &fakeAPI{objects: map[string]map[string]client.Object{}, handlers: map[string][]toolscache.ResourceEventHandler{}, events: make(chan func(), 100000),
		statusWrites: map[string]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n := 0
		for f := range a.events {
			n++
			if n%10 == 0 {
				time.Sleep(time.Duration(a.lag.Load()))
			}
			f()
		}
	}()
	return a, func() { close(a.events); <-done }
}

func kindOf(obj any) string {
	switch obj.(type) {
	case *appsv1.DaemonSet:
		return kindDaemonSet
	case *corev1.Node:
		return kindNode
	case *corev1.Pod:
		return kindPod
	case *appsv1.ControllerRevision:
		return kindRevision
	case *v1alpha1.RolloutPolicy:
		return kindPolicy
	case *v1alpha1.DaemonSetRollout:
		return kindRollout
	case *v1alpha1.DaemonSetVariant:
		return kindVariant
	}
	panic(fmt.Sprintf("unknown kind of object %T", obj))
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

var resource = map[string]schema.GroupResource{
	kindDaemonSet: {Group: "apps", Resource: "daemonsets"}, kindNode: {Resource: "nodes"},
	kindPod: {Resource: "pods"}, kindRevision: {Group: "apps", Resource: "controllerrevisions"},
	kindPolicy: {Group: "everynode.io", Resource: "rolloutpolicies"}, kindRollout: {Group: "everynode.io", Resource: "daemonsetrollouts"},
	kindVariant: {Group: "everynode.io", Resource: "daemonsetvariants"},
}

// put stores a copy, with the lock held, and tells the watchers.
func (a *fakeAPI) put(obj client.Object) client.Object {
	kind, key := kindOf(obj), keyOf(obj.GetNamespace(), obj.GetName())
	a.version++
	obj = obj.DeepCopyObject().(client.Object)
	obj.SetResourceVersion(strconv.FormatInt(a.version, 10))
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", a.version)))
		obj.SetCreationTimestamp(metav1.NewTime(time.Unix(a.version, 0)))
	}
	if a.objects[kind] == nil {
		a.objects[kind] = map[string]client.Object{}
	}
	old := a.objects[kind][key]
	a.objects[kind][key] = obj
	for _, h := range a.handlers[kind] {
		if old == nil {
			a.events <- func() { h.OnAdd(obj, false) }
		} else {
			a.events <- func() { h.OnUpdate(old, obj) }
		}
	}
	return obj.DeepCopyObject().(client.Object)
}

func (a *fakeAPI) drop(kind, key string) {
	obj := a.objects[kind][key]
	delete(a.objects[kind], key)
	for _, h := range a.handlers[kind] {
		a.events <- func() { h.OnDelete(obj) }
	}
}

func get[T client.Object](a *fakeAPI, kind, namespace, name string) (T, error) {
	obj, ok := a.objects[kind][keyOf(namespace, name)]
	if !ok {
		var none T
		return none, apierrors.NewNotFound(resource[kind], name)
	}
	return obj.DeepCopyObject().(T), nil
}

// edit changes an object as a user or agent would.
func edit[T client.Object](t *testing.T, a *fakeAPI, namespace, name string, by func(T)) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var zero T
	obj, err := get[T](a, kindOf(zero), namespace, name)
	if err != nil {
		t.Fatalf("change %s/%s: %v", namespace, name, err)
	}
	by(obj)
	a.put(obj)
}

// add stores a new object.
func (a *fakeAPI) add(obj client.Object) client.Object {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.put(obj)
}

// erase removes an object at once.
func (a *fakeAPI) erase(kind, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(kind, keyOf(namespace, name))
}

func list[T client.Object](a *fakeAPI, kind string) []T {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []T
	for _, key := range slices.Sorted(maps.Keys(a.objects[kind])) {
		out = append(out, a.objects[kind][key].(T))
	}
	return out
}

// fakeInformer replays what is there, then follows.
type fakeInformer struct {
	cache.Informer
	api  *fakeAPI
	kind string
}

type fakeRegistration struct {
	toolscache.ResourceEventHandlerRegistration
	synced chan struct{}
}

func (r *fakeRegistration) HasSyncedChecker() toolscache.DoneChecker { return r }
func (r *fakeRegistration) Name() string                             { return "fake" }
func (r *fakeRegistration) Done() <-chan struct{}                    { return r.synced }

func (a *fakeAPI) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &fakeInformer{api: a, kind: kindOf(obj)}, nil
}

func (i *fakeInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	a := i.api
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &fakeRegistration{synced: make(chan struct{})}
	for _, obj := range a.objects[i.kind] {
		a.events <- func() { h.OnAdd(obj, true) }
	}
	a.events <- func() { close(r.synced) }
	a.handlers[i.kind] = append(a.handlers[i.kind], h)
	return r, nil
}

func (i *fakeInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	i.api.mu.Lock()
	defer i.api.mu.Unlock()
	delete(i.api.handlers, i.kind)
	return nil
}

// start plays the scheduler and the agent for a pod.
func start(p *corev1.Pod) {
	p.Spec.NodeName = p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
}

func (a *fakeAPI) CreatePod(_ context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	a.mu.Lock()
	if hold := a.holdCreate; hold != nil {
		a.mu.Unlock()
		<-hold()
		a.mu.Lock()
	}
	defer a.mu.Unlock()
	a.createCalls++
	if a.refuseCreate != nil {
		if err := a.refuseCreate(p); err != nil {
			return nil, err
		}
	}
	if _, err := get[*corev1.Pod](a, kindPod, p.Namespace, p.Name); err == nil {
		return nil, apierrors.NewAlreadyExists(resource[kindPod], p.Name)
	}
	for _, obj := range a.objects[kindPod] {
		other := obj.(*corev1.Pod)
		if ownerOf(other) == ownerOf(p) && pod.TargetNode(other) == pod.TargetNode(p) && (!pod.IsTerminal(other) || !pod.IsTerminating(other)) {
			a.twins = append(a.twins, fmt.Sprintf("%s and %s on %s", p.Name, other.Name, pod.TargetNode(p)))
		}
	}
	created := a.put(p).(*corev1.Pod)
	if !a.manualStart {
		start(created)
		if a.started != nil {
			a.started(created)
		}
		a.put(created)
	}
	if a.loseAnswer != nil && a.loseAnswer() {
		return nil, apierrors.NewInternalError(fmt.Errorf("the answer was lost"))
	}
	return created, nil
}

func (a *fakeAPI) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return get[*corev1.Pod](a, kindPod, namespace, name)
}

func (a *fakeAPI) DeletePod(_ context.Context, namespace, name string, uid types.UID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuseDelete != nil {
		if err := a.refuseDelete(); err != nil {
			return err
		}
	}
	p, err := get[*corev1.Pod](a, kindPod, namespace, name)
	if err != nil {
		return err
	}
	if p.UID != uid {
		return apierrors.NewConflict(resource[kindPod], name, fmt.Errorf("the UID in the precondition does not match"))
	}
	if a.deleting != nil {
		a.deleting(p)
	}
	now := metav1.Now()
	p.DeletionTimestamp = &now
	a.put(p)
	if !a.manualStop {
		a.drop(kindPod, keyOf(namespace, name))
	}
	return nil
}

func patchObject[T client.Object](
	a *fakeAPI, kind, namespace, name string, patch []byte, into T, also ...func(T),
) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	obj, err := get[T](a, kind, namespace, name)
	if err != nil {
		return into, err
	}
	var pre struct{ Metadata struct{ UID types.UID } }
	if err := json.Unmarshal(patch, &pre); err != nil {
		return into, err
	}
	if pre.Metadata.UID != "" && pre.Metadata.UID != obj.GetUID() {
		return into, apierrors.NewConflict(resource[kind], name, fmt.Errorf("the UID in the precondition does not match"))
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		return into, err
	}
	raw, err = strategicpatch.StrategicMergePatch(raw, patch, into)
	if err != nil {
		return into, err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return into, err
	}
	for _, change := range also {
		change(into)
	}
	return a.put(into).(T), nil
}

func (a *fakeAPI) PatchPod(_ context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	a.mu.Lock()
	refuse := a.refusePatch
	a.mu.Unlock()
	if refuse != nil {
		if err := refuse(patch); err != nil {
			return nil, err
		}
	}
	return patchObject(a, kindPod, namespace, name, patch, &corev1.Pod{})
}

// ResizePod is pods/resize: the pod has another generation, and its node gives it the amounts at once unless told
// otherwise.
func (a *fakeAPI) ResizePod(_ context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	if refuse := a.refuseResize; refuse != nil {
		if err := refuse(); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	a.resizes++
	a.mu.Unlock()
	return patchObject(a, kindPod, namespace, name, patch, &corev1.Pod{}, func(p *corev1.Pod) {
		p.Generation++
		if !a.manualResize {
			p.Status.ObservedGeneration = p.Generation
		}
	})
}

func (a *fakeAPI) GetDaemonSet(_ context.Context, namespace, name string) (*appsv1.DaemonSet, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return get[*appsv1.DaemonSet](a, kindDaemonSet, namespace, name)
}

func (a *fakeAPI) UpdateDaemonSetStatus(_ context.Context, ds *appsv1.DaemonSet) (*appsv1.DaemonSet, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have, err := get[*appsv1.DaemonSet](a, kindDaemonSet, ds.Namespace, ds.Name)
	if err != nil {
		return nil, err
	}
	if have.ResourceVersion != ds.ResourceVersion {
		return nil, apierrors.NewConflict(resource[kindDaemonSet], ds.Name, fmt.Errorf("the object has been modified"))
	}
	have.Status = ds.Status
	a.statusWrites[ds.Name]++
	if a.forgetConditions {
		have.Status.Conditions = nil
	}
	return a.put(have).(*appsv1.DaemonSet), nil
}

func (a *fakeAPI) CreateRevision(_ context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := get[*appsv1.ControllerRevision](a, kindRevision, r.Namespace, r.Name); err == nil {
		return nil, apierrors.NewAlreadyExists(resource[kindRevision], r.Name)
	}
	return a.put(r).(*appsv1.ControllerRevision), nil
}

func (a *fakeAPI) GetRevision(_ context.Context, namespace, name string) (*appsv1.ControllerRevision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return get[*appsv1.ControllerRevision](a, kindRevision, namespace, name)
}

func (a *fakeAPI) UpdateRevision(_ context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have, err := get[*appsv1.ControllerRevision](a, kindRevision, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	if have.ResourceVersion != r.ResourceVersion {
		return nil, apierrors.NewConflict(resource[kindRevision], r.Name, fmt.Errorf("the object has been modified"))
	}
	return a.put(r).(*appsv1.ControllerRevision), nil
}

func (a *fakeAPI) PatchRevision(_ context.Context, namespace, name string, patch []byte) (*appsv1.ControllerRevision, error) {
	return patchObject(a, kindRevision, namespace, name, patch, &appsv1.ControllerRevision{})
}

func (a *fakeAPI) DeleteRevision(_ context.Context, old *appsv1.ControllerRevision) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keepRevisions {
		a.revisionsKept++
		return apierrors.NewForbidden(resource[kindRevision], old.Name, fmt.Errorf("nothing may be deleted"))
	}
	r, err := get[*appsv1.ControllerRevision](a, kindRevision, old.Namespace, old.Name)
	if err != nil {
		return err
	}
	if r.UID != old.UID || r.ResourceVersion != old.ResourceVersion {
		return apierrors.NewConflict(resource[kindRevision], old.Name, fmt.Errorf("the precondition does not match"))
	}
	a.drop(kindRevision, keyOf(old.Namespace, old.Name))
	return nil
}

// runController starts a controller and stops it at the end of the test.
func runController(t *testing.T, a *fakeAPI) *record.FakeRecorder {
	t.Helper()
	recorder, stop := startRecorded(t, a)
	t.Cleanup(stop)
	return recorder
}

// startController starts a controller; the function it returns stops it.
func startController(t *testing.T, a *fakeAPI) (stop func()) {
	t.Helper()
	_, stop = startRecorded(t, a)
	return stop
}

func startRecorded(t *testing.T, a *fakeAPI) (*record.FakeRecorder, func()) {
	t.Helper()
	return startLimited(t, a, row.Config{})
}

func startLimited(t *testing.T, a *fakeAPI, limits row.Config) (*record.FakeRecorder, func()) {
	t.Helper()
	recorder := record.NewFakeRecorder(100000)
	c, err := New(Config{Informers: a, Writer: a, Recorder: recorder, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return recorder, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// eventually waits until the condition holds; it returns what is missing, or "".
func eventually(t *testing.T, condition func() string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		missing := condition()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still: %s", missing)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func ownerOf(obj metav1.Object) types.UID { return belongings.OwnerOf(obj) }
