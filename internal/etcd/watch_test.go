package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestManyWatchesEnd ends very many watches of one resource at once while it
// changes, and watches it, and another one, anew.
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
		w, err := many.Watch(ctx, "/many/", storage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: storage.Everything})
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
		w, err := store.Watch(t.Context(), name, storage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: storage.Everything})
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
	codec := scheme.Codecs.CodecForVersions(info.Serializer, scheme.Codecs.UniversalDeserializer(), corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
	config := storagebackend.NewDefaultConfig("/registry", codec).ForResource(schema.GroupResource{Resource: name})
	store, err := s.Open(config, func() runtime.Object { return &corev1.Pod{} }, func() runtime.Object { return &corev1.PodList{} }, "/"+name)
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
