package watchhistory

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/storage/etcd"
)

func TestTimesRunFasterTheMoreEventsThereAre(t *testing.T) {
	start := time.Unix(1000, 0)
	var last time.Time
	for _, c := range []struct{ now, want time.Duration }{
		{0, 0}, {0, time.Second}, {0, 2 * time.Second}, {time.Second, 3 * time.Second}, // ahead
		{10 * time.Second, 10 * time.Second}, {12 * time.Second, 12 * time.Second}, // a quiet time
	} {
		if last = next(last, start.Add(c.now), time.Second); !last.Equal(start.Add(c.want)) {
			t.Errorf("an event at %v counts as of %v, want %v", c.now, last.Sub(start), c.want)
		}
	}
}

// TestOnlySoManyEventsAreKept writes far more than are kept, all within a moment, and resumes watches from before.
func TestOnlySoManyEventsAreKept(t *testing.T) {
	const kept, written = 200, 3000
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	codec := scheme.Codecs.CodecForVersions(info.Serializer, scheme.Codecs.UniversalDeserializer(), corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
	of := schema.GroupResource{Resource: "pods"}
	newPod, newList := func() runtime.Object { return &corev1.Pod{} }, func() runtime.Object { return &corev1.PodList{} }
	config := storagebackend.NewDefaultConfig("/registry", codec).ForResource(of)
	raw, err := server.Open(config, newPod, newList, "/pods")
	if err != nil {
		t.Fatal(err)
	}
	watched, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: Bound(raw, kept, config.EventsHistoryWindow, clock.RealClock{}), Versioner: storage.APIObjectVersioner{}, GroupResource: of,
		ResourcePrefix: "/pods/", EventsHistoryWindow: config.EventsHistoryWindow, Codec: codec, NewFunc: newPod, NewListFunc: newList,
		KeyFunc: func(obj runtime.Object) (string, error) { return "/pods/" + obj.(*corev1.Pod).Name, nil },
		GetAttrsFunc: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			return obj.(*corev1.Pod).Labels, nil, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	delegator := cacher.NewCacheDelegator(watched, raw)
	defer delegator.Stop()

	var versions []string
	for i := range written {
		out := &corev1.Pod{}
		if err := delegator.Create(t.Context(), fmt.Sprintf("/pods/p%d", i), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)}}, out, 0); err != nil {
			t.Fatal(err)
		}
		versions = append(versions, out.ResourceVersion)
	}
	resume := func(from int) (told int, err error) {
		w, err := delegator.Watch(t.Context(), "/pods/", storage.ListOptions{ResourceVersion: versions[from], Recursive: true, Predicate: storage.Everything})
		if err != nil {
			return 0, err
		}
		defer w.Stop()
		for e := range w.ResultChan() {
			if e.Type == watch.Error {
				return told, apierrors.FromObject(e.Object)
			}
			told++
			if m, err := meta.Accessor(e.Object); err == nil && m.GetResourceVersion() == versions[written-1] {
				break
			}
		}
		return told, nil
	}
	if told, err := resume(written - 1 - kept/2); err != nil || told != kept/2 {
		t.Errorf("a watch from %d events ago is told %d, %v", kept/2, told, err)
	}
	for _, ago := range []int{3 * kept, written - 1} {
		if told, err := resume(written - 1 - ago); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from %d events ago is told %d, %v, want to be told that this is too long ago", ago, told, err)
		}
	}
}
