package hotstore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"
)

// Who lists at a version, and watches from there, is told of what was renewed in between at that very version.
func TestAWatchIsToldOfRenewalsAtItsVersion(t *testing.T) {
	f := newFixture(t, byMessage(time.Hour))
	for _, name := range []string{"p1", "p2", "q"} {
		f.create(t, name, "")
	}
	f.shows(t, f.label(t, "q", "2"))
	f.mustPut(t, "p1", "before", "")
	list := &example.PodList{}
	err := f.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list)
	if err != nil {
		t.Fatal(err)
	}
	f.mustPut(t, "p2", "hidden", "")
	w, shown := f.watchAll(t.Context(), t, list.ResourceVersion), ""
	for shown != "hidden" { // the one of before may come once more
		e := next(t, w)
		pod, ok := podOf(e)
		if !ok || e.Type != watch.Modified || pod.ResourceVersion != list.ResourceVersion {
			t.Fatalf("a watch from version %s is told of %v", list.ResourceVersion, e)
		}
		shown = pod.Status.Message
	}

	// So is who was cut off for longer, in the order of versions, and each of them once.
	f.shows(t, f.label(t, "q", "3"))
	f.mustPut(t, "p1", "later", "")
	w = f.watchAll(t.Context(), t, list.ResourceVersion)
	var told []string
	for range 3 {
		pod, ok := podOf(next(t, w))
		if !ok {
			t.Fatal("a watch that goes on fails")
		}
		told = append(told, pod.Name+"="+pod.Status.Message)
	}
	if !slices.Equal(told, []string{"p2=hidden", "q=", "p1=later"}) {
		t.Errorf("a watch that was cut off is told of %v", told)
	}
}

// The check that compares a list with the database gets the versions of what is in the list, whatever is written while
// it is made.
func TestVersionsForTheCheckAreThoseOfTheList(t *testing.T) {
	var once sync.Once
	meanwhile := func() {}
	f := newFixture(t, func(c *Config) {
		byMessage(time.Hour)(c)
		attributes := c.Attributes
		c.Attributes = func(object runtime.Object) (labels.Set, fields.Set, error) {
			if object.(*example.Pod).Name == "p2" {
				once.Do(meanwhile)
			}
			return attributes(object)
		}
	})
	created := f.create(t, "p1", "")
	f.create(t, "p2", "")
	f.create(t, "q", "")
	f.shows(t, f.label(t, "q", "2"))
	f.mustPut(t, "p1", "renewed", "")
	meanwhile = func() { f.shows(t, f.label(t, "p1", "2")) }
	once = sync.Once{}

	p, list := storage.Everything, &example.PodList{}
	p.Label = labels.SelectorFromSet(labels.Set{"a": "1"})
	err := stored{f.Cache}.GetList(t.Context(), "/pods/", storage.ListOptions{Recursive: true, Predicate: p, ResourceVersion: "0"}, list)
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("the list is %v, %v", list.Items, err)
	}
	if got := list.Items[0].ResourceVersion; got != created.ResourceVersion {
		t.Errorf("at %s the database held version %s, and the check is told %s", list.ResourceVersion, created.ResourceVersion, got)
	}
}

// slowStats is a storage that answers about its size only when it may.
type slowStats struct {
	storage.Interface
	asked, may chan struct{}
}

func (s slowStats) Stats(ctx context.Context) (storage.Stats, error) {
	close(s.asked)
	<-s.may
	return s.Interface.Stats(ctx)
}

// While the database says how much there is, the objects can be loaded.
func TestStatsHoldNothingUp(t *testing.T) {
	f := newFixture(t, nil)
	slow := slowStats{f.Storage, make(chan struct{}), make(chan struct{})}
	f.mu.Lock()
	f.ready, f.Storage = false, slow
	f.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		_, err := f.Stats(t.Context())
		done <- err
	}()
	<-slow.asked
	locked := f.mu.TryLock()
	if locked {
		f.mu.Unlock()
	}
	close(slow.may)
	err := <-done
	if !locked || err != nil {
		t.Errorf("others can take the lock meanwhile: %v, and the answer is %v", locked, err)
	}
}

// gated is a database whose changes are told when the gate is open.
type gated struct {
	Database
	gate *sync.Mutex
}

func (g gated) Watch(ctx context.Context, after int64, change func(string, []byte, int64) error, reached func(int64) error) error {
	return g.Database.Watch(ctx, after, func(key string, value []byte, revision int64) error {
		g.gate.Lock()
		defer g.gate.Unlock()
		return change(key, value, revision)
	}, reached)
}

// A write that was just answered can be followed by one that wants its version, also before the cache has heard of it; one
// that wants the version of before a renewal is refused.
func TestVersionsThatMemoryDoesNotKnow(t *testing.T) {
	gate := &sync.Mutex{}
	f := newFixture(t, func(c *Config) { byMessage(time.Hour)(c); c.Database = gated{c.Database, gate} })
	created := f.create(t, "p", "")
	f.create(t, "q", "")
	f.shows(t, f.label(t, "q", "2"))
	f.mustPut(t, "p", "renewed", "")
	remove := func(version string) error {
		return f.Delete(t.Context(), "/pods/ns/p", &example.Pod{}, &storage.Preconditions{ResourceVersion: ptr.To(version)},
			storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	}
	err := remove(created.ResourceVersion)
	if !storage.IsInvalidObj(err) {
		t.Errorf("who has not seen the renewal deletes: %v", err)
	}
	gate.Lock()
	answered := f.label(t, "p", "2")
	err = remove("1000000")
	if !storage.IsInvalidObj(err) {
		t.Errorf("a version that there never was deletes: %v", err)
	}
	err = remove(answered.ResourceVersion)
	gate.Unlock()
	if err != nil {
		t.Errorf("the version of a write that was just answered: %v", err)
	}
}

// A watch inside may be further behind than one of others.
func TestInsideMayBeFurtherBehind(t *testing.T) {
	const slack = 10
	f := newFixture(t, func(c *Config) { c.Slack = slack })
	inside, outside := f.watchAll(Inside(t.Context()), t, "0"), f.watchAll(t.Context(), t, "0")
	var last *example.Pod
	const all = resultRoom + 5*slack
	for i := range all {
		last = f.create(t, "p"+strconv.Itoa(i), "")
	}
	f.shows(t, last)
	for i := range all {
		e, ok := <-inside.ResultChan()
		if !ok || e.Type != watch.Added {
			t.Fatalf("a watch inside that is %d events behind is told of %v after %d", 5*slack, e, i)
		}
	}
	told := 0
	for range outside.ResultChan() {
		told++
	}
	if told >= all {
		t.Errorf("a watch of others that is as far behind is told all %d", told)
	}
}
