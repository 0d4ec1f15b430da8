package hotstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func (f *fixture) create(t *testing.T, name, node string) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"a": "1"}}, Spec: example.PodSpec{NodeName: node}}
	if err := f.Create(t.Context(), "/pods/ns/"+name, pod, out, 0); err != nil {
		t.Fatal(err)
	}
	return out
}

func (f *fixture) label(t *testing.T, name, value string) *example.Pod {
	t.Helper()
	out := &example.Pod{}
	err := f.GuaranteedUpdate(t.Context(), "/pods/ns/"+name, out, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		obj.(*example.Pod).Labels["a"] = value // A map that is there: the object must be the caller's own.
		return obj, nil
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (f *fixture) watchAll(ctx context.Context, t *testing.T, version string) watch.Interface {
	t.Helper()
	w, err := f.Watch(ctx, "/pods/", storage.ListOptions{ResourceVersion: version, Recursive: true, Predicate: storage.Everything})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is told")
		return watch.Event{}
	}
}

// TestOneObjectForAll: what is written is decoded once, and those inside share it.
func TestOneObjectForAll(t *testing.T) {
	var decoded atomic.Int64
	f := newFixture(t, func(c *Config) { c.Decoder.codec = counting{c.Decoder.codec, &decoded} })
	inside := Inside(t.Context())
	one, two := f.watchAll(inside, t, "0"), f.watchAll(inside, t, "0")
	f.create(t, "p", "")
	first, second := next(t, one).Object.(*example.Pod), next(t, two).Object.(*example.Pod)
	element, _, _ := f.objects.GetByKey("/pods/ns/p")
	if held := entryOf(element).Object; first != second || first != held {
		t.Errorf("two watches inside are told of %p and %p, the cache holds %p: want one object", first, second, held)
	}
	answered := f.label(t, "p", "2")
	changed := next(t, one).Object.(*example.Pod)
	if next(t, two).Object != changed {
		t.Error("the watches inside are told of different objects")
	}
	if first.Labels["a"] != "1" || changed.Labels["a"] != "2" {
		t.Errorf("labels before and after are %v and %v: an update wrote into the shared object", first.Labels, changed.Labels)
	}
	answered.Labels["a"] = "3"
	if changed.Labels["a"] != "2" {
		t.Error("the answer of a write shares its labels with the cache")
	}
	if n := decoded.Load(); n != 2 {
		t.Errorf("two writes were decoded %d times", n)
	}
}

type counting struct {
	runtime.Codec
	n *atomic.Int64
}

func (c counting) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	c.n.Add(1)
	return c.Codec.Decode(data, defaults, into)
}

// TestOthersCannotChangeWhatIsShared: what those outside are told of is not shared.
func TestOthersCannotChangeWhatIsShared(t *testing.T) {
	f := newFixture(t, nil)
	w := f.watchAll(t.Context(), t, "0")
	f.create(t, "p", "")
	e := next(t, w)
	cached, ok := e.Object.(runtime.CacheableObject)
	if !ok {
		t.Fatalf("those outside are told of a %T, which each of them would encode", e.Object)
	}
	cached.GetObject().(*example.Pod).Labels["a"] = "x"
	got := &example.Pod{}
	if err := f.Get(t.Context(), "/pods/ns/p", storage.GetOptions{ResourceVersion: "0"}, got); err != nil || got.Labels["a"] != "1" {
		t.Errorf("after a reader of a watch wrote into its object there is %v, %v", got.Labels, err)
	}
}

// TestHistoryIsBounded: a watch goes on from within the history, and is told that it
// cannot from before.
func TestHistoryIsBounded(t *testing.T) {
	const kept, written = 50, 300
	f := newFixture(t, func(c *Config) { c.History = kept })
	var versions []string
	for i := range written {
		versions = append(versions, f.create(t, fmt.Sprintf("p%d", i), "").ResourceVersion)
	}
	last, _ := storage.APIObjectVersioner{}.ParseResourceVersion(versions[written-1])
	if err := f.waitUntil(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	w := f.watchAll(t.Context(), t, versions[written-1-kept])
	for range kept {
		if e := next(t, w); e.Type != watch.Added {
			t.Fatalf("a watch from within the history is told %v", e)
		}
	}
	for _, version := range []string{versions[written-2-kept], versions[0]} {
		e := next(t, f.watchAll(t.Context(), t, version))
		if e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("a watch from before the history is told %v, want that this is too long ago", e)
		}
	}
}

// TestSlowWatchIsEnded: nobody waits for a watch that nobody reads, and it keeps nothing.
func TestSlowWatchIsEnded(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Slack = 50 })
	slow, quick := f.watchAll(t.Context(), t, "0"), f.watchAll(t.Context(), t, "0")
	for i := range 400 {
		f.create(t, fmt.Sprintf("p%d", i), "")
		if e := next(t, quick); e.Type != watch.Added {
			t.Fatalf("beside a slow watch another one is told %v", e)
		}
	}
	n := 0
	for range slow.ResultChan() {
		n++
	}
	if n >= 400 {
		t.Errorf("a watch that nobody read was told all %d events", n)
	}
}

// TestWatchOfANodeIsToldOfItsPodsOnly, also when a pod comes to it or leaves.
func TestWatchOfANodeIsToldOfItsPodsOnly(t *testing.T) {
	f := newFixture(t, byNode)
	p := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.ParseSelectorOrDie("spec.nodeName=n1"), GetAttrs: examplePodAttributes, IndexFields: []string{"spec.nodeName"}}
	f.create(t, "a", "n1")
	f.create(t, "b", "n2")
	w, err := f.Watch(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: p, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := next(t, w); e.Type != watch.Added || e.Object.(*encodedOnce).object.(*example.Pod).Name != "a" {
		t.Fatalf("it begins with %v", e)
	}
	f.create(t, "c", "n2")
	f.move(t, "b", "n1")
	f.move(t, "a", "n2")
	for _, want := range []struct {
		kind watch.EventType
		name string
	}{{watch.Added, "b"}, {watch.Deleted, "a"}} {
		if e := next(t, w); e.Type != want.kind || e.Object.(*encodedOnce).object.(*example.Pod).Name != want.name {
			t.Errorf("told %v, want %v", e, want)
		}
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if len(f.watchers.byTrigger["n1"]) != 1 || len(f.watchers.byScope) != 0 {
		t.Error("events of all pods are handed to the watch of a node")
	}
}

// faulty is a database that can be cut off.
type faulty struct {
	Database
	cut chan error
}

func (f *faulty) Watch(ctx context.Context, after int64, change func(string, []byte, int64) error, reached func(int64) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case err := <-f.cut:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	err := f.Database.Watch(ctx, after, change, reached)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	cancel(nil)
	return err
}

// TestDatabaseIsCutOff: what is missed comes later, and nobody notices.
func TestDatabaseIsCutOff(t *testing.T) {
	cut := make(chan error)
	f := newFixture(t, func(c *Config) { c.Database = &faulty{c.Database, cut} })
	w := f.watchAll(t.Context(), t, "0")
	f.create(t, "a", "")
	if e := next(t, w); e.Type != watch.Added {
		t.Fatal(e)
	}
	cut <- errors.New("cut off")
	f.create(t, "b", "")
	f.label(t, "b", "2")
	if one, two := next(t, w), next(t, w); one.Type != watch.Added || two.Type != watch.Modified {
		t.Errorf("after the database was cut off, told %v and %v", one, two)
	}
}

// minority is a storage whose database cannot be read while it is cut off.
type minority struct {
	storage.Interface
	off atomic.Bool
}

func (m *minority) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	if m.off.Load() {
		return 0, errors.New("no leader")
	}
	return m.Interface.GetCurrentResourceVersion(ctx)
}

// loads counts how often all is loaded.
type loads struct {
	Database
	n atomic.Int64
}

func (l *loads) List(ctx context.Context, each func(string, []byte, int64) error) (int64, error) {
	l.n.Add(1)
	return l.Database.List(ctx, each)
}

// TestDatabaseHasNoMajority: watches end, and the cache answers again when it has what was written meanwhile, without
// loading all again.
func TestDatabaseHasNoMajority(t *testing.T) {
	cut, m, l := make(chan error), &minority{}, &loads{}
	f := newFixture(t, func(c *Config) {
		m.Interface, l.Database = c.Storage, &faulty{c.Database, cut}
		c.Storage, c.Database = m, l
	})
	before := f.create(t, "a", "")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w := f.watchAll(ctx, t, "0")
	if e := next(t, w); e.Type != watch.Added {
		t.Fatal(e)
	}
	m.off.Store(true)
	cut <- apierrors.NewServiceUnavailable("no leader")
	for range w.ResultChan() {
		t.Error("a watch is told more without a majority")
	}
	if f.Ready() || ctx.Err() != nil {
		t.Fatal("the cache is ready, or its watch goes on, without a majority")
	}
	created := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}}
	if err := f.raw.Create(t.Context(), "/pods/ns/b", created, created, 0); err != nil {
		t.Fatal(err)
	}
	m.off.Store(false)
	waitReady(t, f.Cache)
	list := &example.PodList{}
	options := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: storage.Everything}
	if err := f.GetList(t.Context(), "/pods/", options, list); err != nil || len(list.Items) != 2 {
		t.Errorf("the cache that is ready again shows %d pods, %v, want 2", len(list.Items), err)
	}
	if e := next(t, f.watchAll(t.Context(), t, before.ResourceVersion)); e.Type != watch.Added {
		t.Errorf("a watch that goes on is told %v", e)
	}
	if n := l.n.Load(); n != 1 {
		t.Errorf("all was loaded %d times", n)
	}
}

// TestDatabaseForgetsTooSoon: when what was missed cannot be told any more, all watches
// end, and the cache shows what there is.
func TestDatabaseForgetsTooSoon(t *testing.T) {
	cut := make(chan error)
	f := newFixture(t, func(c *Config) { c.Database = &faulty{c.Database, cut} })
	f.create(t, "gone", "")
	f.create(t, "kept", "")
	before := f.create(t, "last", "")
	revision, _ := storage.APIObjectVersioner{}.ParseResourceVersion(before.ResourceVersion)
	if err := f.waitUntil(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	w := f.watchAll(t.Context(), t, before.ResourceVersion)
	cut <- apierrors.NewResourceExpired("compacted")
	if err := f.raw.Delete(t.Context(), "/pods/ns/gone", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range w.ResultChan() {
		t.Error("a watch that missed something is told more")
	}
	waitReady(t, f.Cache)
	list := &example.PodList{}
	if err := f.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list); err != nil || len(list.Items) != 2 {
		t.Errorf("the cache shows %d pods, %v, want 2", len(list.Items), err)
	}
	e := next(t, f.watchAll(t.Context(), t, before.ResourceVersion))
	if e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("a watch from before is told %v, want that this is too long ago", e)
	}
}

// TestWritesOfOthers: the cache shows what the database has, whoever wrote it and whatever
// the writer was told.
func TestWritesOfOthers(t *testing.T) {
	f := newFixture(t, nil)
	w := f.watchAll(t.Context(), t, "0")
	if err := f.raw.Create(t.Context(), "/pods/ns/p", &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}, nil, 1); err != nil {
		t.Fatal(err)
	}
	if e := next(t, w); e.Type != watch.Added {
		t.Errorf("told %v", e)
	}
	// Its lease ends, and nobody deletes it.
	if e := next(t, w); e.Type != watch.Deleted || e.Object.(*encodedOnce).object.(*example.Pod).Name != "p" {
		t.Errorf("told %v", e)
	}
	// Two keys change in one revision.
	f.create(t, "a", "")
	f.create(t, "b", "")
	_, _ = next(t, w), next(t, w)
	if _, err := f.server.V3Client.Delete(t.Context(), "/registry/pods/ns/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if one, two := next(t, w), next(t, w); one.Type != watch.Deleted || two.Type != watch.Deleted {
		t.Errorf("told %v and %v", one, two)
	}
}

// TestFailedWrites leave nothing behind.
func TestFailedWrites(t *testing.T) {
	f := newFixture(t, nil)
	f.create(t, "p", "")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Create(ended, "/pods/ns/q", &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}}, &example.Pod{}, 0); err == nil {
		t.Error("a write without time succeeds")
	}
	err := f.GuaranteedUpdate(t.Context(), "/pods/ns/p", &example.Pod{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		obj.(*example.Pod).Labels["a"] = "x"
		return nil, errors.New("refused")
	}), nil)
	if err == nil {
		t.Error("a refused update succeeds")
	}
	list := &example.PodList{}
	if err := f.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list); err != nil || len(list.Items) != 1 || list.Items[0].Labels["a"] != "1" {
		t.Errorf("there is %v, %v", list.Items, err)
	}
}

// TestInformerInside holds the cache's own objects, from its beginning on.
func TestInformerInside(t *testing.T) {
	f := newFixture(t, nil)
	f.create(t, "a", "")
	informer := cache.NewSharedIndexInformer(f.ListWatch(), &example.Pod{}, 0, cache.Indexers{})
	seen := make(chan any, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { seen <- obj }, DeleteFunc: func(obj any) { seen <- obj }}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	first := <-seen
	if element, _, _ := f.objects.GetByKey("/pods/ns/a"); first != any(entryOf(element).Object) {
		t.Error("the informer has a copy of the first object")
	}
	f.create(t, "b", "")
	second := <-seen
	if element, _, _ := f.objects.GetByKey("/pods/ns/b"); second != any(entryOf(element).Object) {
		t.Error("the informer has a copy of the second object")
	}
	if err := f.Delete(t.Context(), "/pods/ns/a", &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if gone, ok := (<-seen).(*example.Pod); !ok || gone.Name != "a" {
		t.Errorf("the informer is told that %v is gone", gone)
	}
}

// TestNothingStaysBehind after watches have ended.
func TestNothingStaysBehind(t *testing.T) {
	f := newFixture(t, byNode)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		w := f.watchAll(ctx, t, "0")
		cancel()
		for range w.ResultChan() {
			t.Error("told something")
		}
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	if n := len(f.watchers.byScope) + len(f.watchers.byTrigger) + len(f.waiting); n != 0 {
		t.Errorf("%d watchers or waiters are left", n)
	}
}

// TestAWatchFromTheFuture: who has seen more than there is must list again, and is not left to wait in silence.
func TestAWatchFromTheFuture(t *testing.T) {
	f := newFixture(t, nil)
	f.create(t, "p", "")
	e := next(t, f.watchAll(t.Context(), t, "1000000"))
	status, ok := e.Object.(*metav1.Status)
	if e.Type != watch.Error || !ok || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("it is told %+v", e)
	}
	// One that another server told of what this one has not heard yet is no such thing.
	revision := f.increase(t.Context(), t)
	w := f.watchAll(Inside(t.Context()), t, fmt.Sprint(revision))
	created := f.create(t, "q", "")
	e = next(t, w)
	if got, ok := e.Object.(*example.Pod); !ok || got.ResourceVersion != created.ResourceVersion {
		t.Errorf("it is told %+v", e)
	}
}
