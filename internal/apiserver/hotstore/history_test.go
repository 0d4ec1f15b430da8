package hotstore

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

func (f *fixture) watchNode(t *testing.T, label, version string) watch.Interface {
	t.Helper()
	selector, err := labels.Parse(label)
	if err != nil {
		t.Fatal(err)
	}
	p := storage.SelectionPredicate{
		Label: selector, Field: fields.ParseSelectorOrDie("spec.nodeName=n1"), GetAttrs: examplePodAttributes, IndexFields: []string{"spec.nodeName"},
	}
	w, err := f.Watch(t.Context(), "/pods/", storage.ListOptions{ResourceVersion: version, Recursive: true, Predicate: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func (f *fixture) move(t *testing.T, name, node string) {
	t.Helper()
	if err := f.GuaranteedUpdate(t.Context(), "/pods/ns/"+name, &example.Pod{}, false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		obj.(*example.Pod).Spec.NodeName = node
		return obj, nil
	}), nil); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) remove(t *testing.T, name string) {
	t.Helper()
	if err := f.Delete(t.Context(), "/pods/ns/"+name, &example.Pod{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWatchOfANodeGoesOnFromBeforeTheHistory: what others write does not cost a node its watch.
func TestWatchOfANodeGoesOnFromBeforeTheHistory(t *testing.T) {
	const kept = 20
	f := newFixture(t, func(c *Config) { byNode(c); c.History = kept })
	others, written := func(name string) {
		for i := range 3 * kept {
			f.create(t, fmt.Sprint(name, i), "n2")
		}
	}, func() {
		at, _ := storage.APIObjectVersioner{}.ParseResourceVersion(f.create(t, "last", "n2").ResourceVersion)
		if err := f.waitUntil(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		f.remove(t, "last")
	}
	for _, name := range []string{"stays", "changes", "goes", "moves", "returns", "again"} {
		f.create(t, name, "n1")
	}
	from := f.create(t, "elsewhere", "n2").ResourceVersion
	others("a")
	f.label(t, "changes", "2")
	f.remove(t, "goes")
	f.move(t, "moves", "n2")
	f.move(t, "returns", "n2")
	f.move(t, "returns", "n1")
	f.remove(t, "again")
	f.create(t, "again", "n1")
	f.create(t, "waits", "")
	f.move(t, "waits", "n1")
	f.label(t, "changes", "3")
	others("b")
	written()

	w := f.watchNode(t, "", from)
	for _, want := range []struct {
		kind        watch.EventType
		name, label string
	}{
		{watch.Deleted, "goes", "1"}, {watch.Deleted, "moves", "1"}, {watch.Deleted, "returns", "1"}, {watch.Added, "returns", "1"},
		{watch.Deleted, "again", "1"}, {watch.Added, "again", "1"}, {watch.Added, "waits", "1"}, {watch.Added, "changes", "3"},
	} {
		e := next(t, w)
		told, ok := e.Object.(*encodedOnce)
		if !ok {
			t.Fatalf("told %v, want %v", e, want)
		}
		if pod := told.object.(*example.Pod); e.Type != want.kind || pod.Name != want.name || pod.Labels["a"] != want.label {
			t.Errorf("told of %s %s %v, want %v", e.Type, pod.Name, pod.Labels, want)
		}
	}
	f.create(t, "new", "n1")
	if e := next(t, w); e.Type != watch.Added || e.Object.(*encodedOnce).object.(*example.Pod).Name != "new" {
		t.Errorf("told %v, want what came afterwards", e)
	}

	expired := func(why string, w watch.Interface) {
		t.Helper()
		if e := next(t, w); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			t.Errorf("%s is told %v, want that this is too long ago", why, e)
		}
	}
	expired("a watch of all", f.watchAll(t.Context(), t, from))
	expired("a watch that asks for labels, which a pod may have lost,", f.watchNode(t, "a=1", from))
	for i := range kept {
		f.remove(t, fmt.Sprint("a", i))
	}
	written()
	expired("a watch after which too many pods have gone", f.watchNode(t, "", from))
}
