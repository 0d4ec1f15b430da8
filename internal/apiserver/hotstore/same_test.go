package hotstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	etcd3testing "k8s.io/apiserver/pkg/storage/etcd3/testing"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// libraryWay is the library's storage and watch cache on the same database.
func (f *fixture) libraryWay(t *testing.T) storage.Interface {
	t.Helper()
	raw, err := etcd3.New(f.server.V3Client, etcd3.NewCompactor(f.server.V3Client.Client, 0, clock.RealClock{}, nil), exampleCodec, newExamplePod, f.NewList,
		etcd3testing.PathPrefix(), "/pods/", f.GroupResource, identity.NewEncryptCheckTransformer(), etcd3.NewDefaultLeaseManagerConfig(),
		etcd3.NewDefaultDecoder(exampleCodec, storage.APIObjectVersioner{}), storage.APIObjectVersioner{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: raw, Versioner: storage.APIObjectVersioner{}, GroupResource: f.GroupResource, EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix: "/pods/", KeyFunc: func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc("/pods/", obj) },
		GetAttrsFunc: examplePodAttributes, NewFunc: newExamplePod, NewListFunc: f.NewList, IndexerFuncs: f.Triggers, Indexers: f.Indexers,
		Codec: exampleCodec, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := cacher.NewCacheDelegator(c, raw)
	t.Cleanup(func() { d.Stop(); c.Stop() })
	if err := c.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSameAsTheLibrary writes at random, through this cache and through the library's, and
// compares what each of the two answers: outcomes of writes, watches from every moment on,
// and lists of every kind.
func TestSameAsTheLibrary(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(strconv.Itoa(int(seed)), func(t *testing.T) {
			f := newFixture(t, byNode)
			w := &world{t: t, random: rand.New(rand.NewPCG(seed, 7)), ours: f, theirs: f.libraryWay(t), revisions: []string{"0"}}
			for range 150 {
				w.step()
			}
			w.finish()
			w.compareLists()
		})
	}
}

type world struct {
	t            *testing.T
	random       *rand.Rand
	ours, theirs storage.Interface
	revisions    []string
	watches      []*pair
}

// pair are two watches for the same.
type pair struct {
	name         string
	ours, theirs <-chan []watch.Event
}

func (w *world) key() (key, namespace, name string) {
	namespace, name = fmt.Sprintf("ns%d", w.random.IntN(2)), fmt.Sprintf("p%d", w.random.IntN(6))
	return "/pods/" + namespace + "/" + name, namespace, name
}

func (w *world) node() string { return []string{"", "n0", "n1"}[w.random.IntN(3)] }

func (w *world) labels() map[string]string {
	return []map[string]string{nil, {"a": "0"}, {"a": "1"}, {"a": "1", "b": "1"}}[w.random.IntN(4)]
}

// step writes something through one of the two, and now and then begins two watches.
func (w *world) step() {
	through := []storage.Interface{w.ours, w.theirs}[w.random.IntN(2)]
	key, namespace, name := w.key()
	out := &example.Pod{}
	var err error
	switch w.random.IntN(4) {
	case 0:
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: w.labels()}, Spec: example.PodSpec{NodeName: w.node()}}
		err = through.Create(w.t.Context(), key, pod, out, 0)
	case 1, 2:
		node, labels, fail := w.node(), w.labels(), w.random.IntN(10) == 0
		err = through.GuaranteedUpdate(w.t.Context(), key, out, false, nil, func(old runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			if fail {
				return nil, nil, errors.New("no")
			}
			pod := old.(*example.Pod)
			pod.Spec.NodeName, pod.Labels = node, labels
			return pod, nil, nil
		}, nil)
	case 3:
		var conditions *storage.Preconditions
		if w.random.IntN(4) == 0 {
			conditions = &storage.Preconditions{ResourceVersion: ptr.To(w.revisions[w.random.IntN(len(w.revisions))])}
		}
		err = through.Delete(w.t.Context(), key, out, conditions, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	}
	if err == nil {
		w.revisions = append(w.revisions, out.ResourceVersion)
	}
	if w.random.IntN(6) == 0 {
		w.watch()
	}
}

func (w *world) predicate() (string, storage.SelectionPredicate) {
	p := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: examplePodAttributes, IndexFields: []string{"spec.nodeName"}}
	switch w.random.IntN(4) {
	case 0:
		p.Label = labels.SelectorFromSet(labels.Set{"a": "1"})
	case 1:
		p.Field = fields.ParseSelectorOrDie("spec.nodeName=n1")
	case 2:
		p.Label, p.Field = labels.SelectorFromSet(labels.Set{"a": "1"}), fields.ParseSelectorOrDie("spec.nodeName=n1")
	}
	return fmt.Sprintf("labels %q, fields %q", p.Label, p.Field), p
}

func (w *world) watch() {
	name, p := w.predicate()
	o := storage.ListOptions{Predicate: p, Recursive: true, ResourceVersion: w.revisions[w.random.IntN(len(w.revisions))]}
	switch w.random.IntN(3) {
	case 0:
		o.SendInitialEvents, o.ResourceVersionMatch, o.Predicate.AllowWatchBookmarks = ptr.To(true), metav1.ResourceVersionMatchNotOlderThan, true
		o.ResourceVersion = ""
	case 1:
		if o.ResourceVersion == "0" {
			o.ResourceVersion = w.revisions[len(w.revisions)-1]
		}
	}
	if o.ResourceVersion == "0" {
		return // Begins with whatever the cache has seen, which is not the same at a moment.
	}
	key := []string{"/pods/", "/pods/ns1/"}[w.random.IntN(2)]
	pair := &pair{name: fmt.Sprintf("%s from %q initial %v of %s", key, o.ResourceVersion, ptr.Deref(o.SendInitialEvents, false), name)}
	begin := func(s storage.Interface) <-chan []watch.Event {
		begun, err := s.Watch(w.t.Context(), key, o)
		if err != nil {
			w.t.Fatal(err)
		}
		out := make(chan []watch.Event, 1)
		go func() { out <- told(begun) }()
		return out
	}
	pair.ours, pair.theirs = begin(w.ours), begin(w.theirs)
	w.watches = append(w.watches, pair)
}

// finish writes what all watches select, and compares what was told up to there.
func (w *world) finish() {
	last := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: "zz", Labels: map[string]string{"a": "1"}}, Spec: example.PodSpec{NodeName: "n1"}}
	if err := w.ours.Create(w.t.Context(), "/pods/ns1/zz", last, &example.Pod{}, 0); err != nil {
		w.t.Fatal(err)
	}
	if len(w.watches) == 0 {
		w.t.Fatal("nothing was watched")
	}
	complete := 0
	for _, p := range w.watches {
		theirs, ours := <-p.theirs, <-p.ours
		if n := len(theirs) - 1; theirs[n].Type == closed && len(ours) > n {
			theirs, ours = theirs[:n], ours[:n] // The library ends a watch for which this machine is too slow.
		} else {
			complete++
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			w.t.Errorf("watch %s: the library's (-) and ours (+) differ:\n%s", p.name, diff)
		}
	}
	if complete == 0 {
		w.t.Error("the library ended all watches")
	}
}

const closed watch.EventType = "CLOSED"

// told is what a watch tells until the last write.
func told(from watch.Interface) (out []watch.Event) {
	defer from.Stop()
	for {
		select {
		case e, ok := <-from.ResultChan():
			if !ok {
				return append(out, watch.Event{Type: closed})
			}
			if cached, ok := e.Object.(runtime.CacheableObject); ok {
				e.Object = cached.GetObject()
			}
			if e.Type == watch.Bookmark {
				if e.Object.(*example.Pod).Annotations[metav1.InitialEventsAnnotationKey] == "" {
					continue
				}
			}
			out = append(out, e)
			if pod, ok := e.Object.(*example.Pod); ok && pod.Name == "zz" || e.Type == watch.Error {
				return out
			}
		case <-time.After(30 * time.Second):
			return append(out, watch.Event{Type: "NOTHING MORE"})
		}
	}
}

// compareLists asks both for the same in all ways.
func (w *world) compareLists() {
	for range 60 {
		_, p := w.predicate()
		p.Limit = int64(w.random.IntN(4))
		o := storage.ListOptions{Predicate: p, Recursive: true}
		o.ResourceVersion = append([]string{"", "", "1"}, w.revisions...)[w.random.IntN(len(w.revisions)+3)]
		if o.ResourceVersion != "" && o.ResourceVersion != "0" {
			o.ResourceVersionMatch = []metav1.ResourceVersionMatch{"", metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan}[w.random.IntN(3)]
		}
		key := []string{"/pods/", "/pods/ns0/", "/pods/none/"}[w.random.IntN(3)]
		for page := 0; page < 20; page++ {
			ours, ourErr := listed(w.t.Context(), w.ours, key, o)
			theirs, theirErr := listed(w.t.Context(), w.theirs, key, o)
			if (ourErr == nil) != (theirErr == nil) || ourErr != nil && apierrors.ReasonForError(ourErr) != apierrors.ReasonForError(theirErr) {
				w.t.Fatalf("list %s %+v: the library's answer %v, ours %v", key, o, theirErr, ourErr)
			}
			if diff := cmp.Diff(theirs, ours); diff != "" {
				w.t.Fatalf("list %s %+v: the library's (-) and ours (+) differ:\n%s", key, o, diff)
			}
			if ourErr != nil || ours.Continue == "" {
				break
			}
			o.ResourceVersion, o.ResourceVersionMatch, o.Predicate.Continue = "", "", ours.Continue
		}
	}
}

func listed(ctx context.Context, s storage.Interface, key string, o storage.ListOptions) (*example.PodList, error) {
	out := &example.PodList{}
	err := s.GetList(ctx, key, o, out)
	return out, err
}
