package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
)

// TestManyWatchesEnd ends very many watches of one resource at once while it
// changes, and watches it, and another one, again.
func TestManyWatchesEnd(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	many, other := openPods(t, s, "many"), openPods(t, s, "other")
	for i := range 10 {
		create(t, many, fmt.Sprintf("/many/%d", i))
	}
	create(t, other, "/other/1")
	writing, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for i := 0; writing.Err() == nil; i++ {
			p := &corev1.Pod{}
			_ = many.Create(writing, fmt.Sprintf("/many/more-%d", i), p, nil, 0)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	var started, ended sync.WaitGroup
	for range 100 {
		w, err := many.Watch(ctx, "/many/", storage.ListOptions{ResourceVersion: "1", Recursive: true,
			Predicate: storage.Everything})
		if err != nil {
			t.Fatal(err)
		}
		started.Add(1)
		ended.Go(func() {
			<-w.ResultChan()
			started.Done()
			for range w.ResultChan() {
			}
		})
	}
	started.Wait()
	cancel()
	ended.Wait()
	for name, store := range map[string]storage.Interface{"/many/": many, "/other/": other} {
		w, err := store.Watch(t.Context(), name, storage.ListOptions{ResourceVersion: "1", Recursive: true,
			Predicate: storage.Everything})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.ResultChan():
		case <-time.After(time.Minute):
			t.Errorf("a watch of %s tells nothing", name)
		}
		w.Stop()
	}
}

func openPods(t *testing.T, s *Server, name string) storage.Interface {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	codec := scheme.Codecs.CodecForVersions(info.Serializer, scheme.Codecs.UniversalDeserializer(),
		corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
	config := storagebackend.NewDefaultConfig("/registry", codec).ForResource(schema.GroupResource{Resource: name})
	store, err := s.Open(config, func() runtime.Object { return &corev1.Pod{} },
		func() runtime.Object { return &corev1.PodList{} }, "/"+name)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func create(t *testing.T, store storage.Interface, key string) {
	t.Helper()
	p := &corev1.Pod{}
	p.Name = key
	if err := store.Create(t.Context(), key, p, nil, 0); err != nil {
		t.Fatal(err)
	}
}

func TestLeadership(t *testing.T) {
	l := newLeadership()
	gone := func() bool { return l.quorum().Err() != nil }
	// since is the number of the look since which there has been no leader.
	for i, step := range []struct {
		is    bool
		since int
	}{
		{true, 0},
		{false, 0}, {false, 0}, {true, 0}, // an election
		{false, 0}, {false, 0}, {false, 4}, {false, 4}, {false, 4}, // no majority
		{true, 0}, {false, 0}, {false, 0}, {false, 10},
	} {
		l.look(time.Unix(int64(i), 0), step.is)
		if gone() != (step.since > 0) {
			t.Errorf("after look %d the leader is gone for too long: %t, want %t", i, gone(), step.since > 0)
		}
		if shown := testutil.ToFloat64(l.metric()); shown != float64(step.since) {
			t.Errorf("after look %d the metric says %v, and there has been no leader since %d", i, shown, step.since)
		}
		said := fmt.Sprint(context.Cause(l.quorum()))
		if want := time.Unix(int64(step.since), 0).UTC().Format(time.RFC3339); gone() && !strings.Contains(said, want) {
			t.Errorf("after look %d it is said to be cut off because %q, and not since %s", i, said, want)
		}
	}
}

// Watches that ask for it end at a member without a majority: what the others write it would not hear. Once there is a
// majority again, new ones tell what is written. Those of the library's storage stay: its caches would load everything
// again, where nothing is missed.
func TestWatchesEndWithoutMajority(t *testing.T) {
	c, first, second, third := three(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	feed, told := apistorage.NewFeed(third.newClient().Client, "/registry", "/pods/"), make(chan string, 9)
	watchPods := func() error {
		return feed.Watch(ctx, 1, func(key string, _ []byte, _ int64) error { told <- key; return nil },
			func(int64) error { return nil })
	}
	ended := make(chan error, 1)
	go func() { ended <- watchPods() }()
	everything := storage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: storage.Everything}
	others := openPods(t, third.Server, "other")
	library, err := others.Watch(ctx, "/other/", everything)
	if err != nil {
		t.Fatal(err)
	}
	put(t, first, "/registry/pods/a", "1")
	if key := <-told; key != "/pods/a" {
		t.Fatalf("with a majority the watch tells of %s", key)
	}
	first.stop()
	second.stop()
	if err := <-ended; !apierrors.IsServiceUnavailable(err) {
		t.Fatalf("without a majority the watch ends with %v", err)
	}
	if err := watchPods(); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("without a majority a new watch ends with %v", err)
	}
	c.start(first)
	put(t, first, "/registry/pods/b", "1")
	go func() {
		for ctx.Err() == nil {
			_ = watchPods() // It ends until the member has seen that there is a leader.
		}
	}()
	for key := ""; key != "/pods/b"; {
		select {
		case key = <-told:
		case <-ctx.Done():
			t.Fatal("with a majority again the watch does not tell what is written")
		}
	}
	for ctx.Err() == nil && others.Create(ctx, "/other/c", &corev1.Pod{}, nil, 0) != nil {
	}
	if e := <-library.ResultChan(); e.Type != watch.Added {
		t.Errorf("with a majority again the library's watch, which was there before, tells %v", e)
	}
}
