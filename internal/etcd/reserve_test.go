package etcd

import (
	"context"
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// keys are what a ConfigMap holds here: the keys of its data.
func keys(obj runtime.Object) (string, []string) {
	m := obj.(*corev1.ConfigMap)
	var names []string
	for name := range maps.Keys(m.Data) {
		names = append(names, name)
	}
	return m.Name, names
}

func reservingConfigMaps(t *testing.T) *Reserving {
	t.Helper()
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c := storagebackend.NewDefaultConfig("/registry", clientscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)).ForResource(schema.GroupResource{Resource: "configmaps"})
	opened, err := s.OpenReserving(c, func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} }, "/configmaps", keys)
	if err != nil {
		t.Fatal(err)
	}
	return opened.(*Reserving)
}

func configMap(name string, holds ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Data: map[string]string{}}
	for _, k := range holds {
		m.Data[k] = ""
	}
	return m
}

func (r *Reserving) expect(t *testing.T, what string, want map[string]string) {
	t.Helper()
	got, err := r.AllHolders(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// become makes an object hold these names.
func (r *Reserving) become(ctx context.Context, name string, holds ...string) error {
	return r.GuaranteedUpdate(ctx, "/configmaps/ns/"+name, &corev1.ConfigMap{}, false, nil, storage.SimpleUpdate(func(old runtime.Object) (runtime.Object, error) {
		m := old.(*corev1.ConfigMap)
		m.Data = configMap(name, holds...).Data // It is the same object, changed in place.
		return m, nil
	}), nil)
}

func TestNamesFollowTheirObject(t *testing.T) {
	r, ctx := reservingConfigMaps(t), t.Context()
	create := func(m *corev1.ConfigMap) error {
		return r.Create(ctx, "/configmaps/ns/"+m.Name, m, &corev1.ConfigMap{}, 0)
	}
	if err := create(configMap("a", "x", "y")); err != nil {
		t.Fatal(err)
	}
	r.expect(t, "created", map[string]string{"x": "a", "y": "a"})
	var taken *TakenError
	if err := create(configMap("b", "w", "y")); !errors.As(err, &taken) || taken.Name != "y" || taken.Holder != "a" {
		t.Errorf("a name that is held: %v", err)
	}
	if err := create(configMap("a", "z")); !storage.IsExist(err) {
		t.Errorf("an object that exists: %v", err)
	}
	r.expect(t, "refused writes", map[string]string{"x": "a", "y": "a"})

	if err := create(configMap("b")); err != nil {
		t.Fatal(err)
	}
	if err := r.become(ctx, "b", "x"); !errors.As(err, &taken) {
		t.Errorf("an update to a name that is held: %v", err)
	}
	if err := r.become(ctx, "a", "y", "z"); err != nil {
		t.Fatal(err)
	}
	if err := r.become(ctx, "b", "x"); err != nil {
		t.Errorf("an update to a name that was given back: %v", err)
	}
	r.expect(t, "updated", map[string]string{"x": "b", "y": "a", "z": "a"})

	// An update that finds the object changed starts again, from what is there then.
	raced := false
	err := r.GuaranteedUpdate(ctx, "/configmaps/ns/a", &corev1.ConfigMap{}, false, nil, storage.SimpleUpdate(func(old runtime.Object) (runtime.Object, error) {
		m := old.(*corev1.ConfigMap)
		if !raced {
			raced = true
			if err := r.become(ctx, "a", "v"); err != nil {
				t.Error(err)
			}
		}
		m.Data["u"] = ""
		return m, nil
	}), nil)
	if err != nil {
		t.Error(err)
	}
	r.expect(t, "a race", map[string]string{"x": "b", "u": "a", "v": "a"})

	for _, name := range []string{"a", "b"} {
		if err := r.Delete(ctx, "/configmaps/ns/"+name, &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	r.expect(t, "deleted", map[string]string{})
}

func TestRepairLeavesAloneWhatChanges(t *testing.T) {
	r, ctx := reservingConfigMaps(t), t.Context()
	for _, m := range []*corev1.ConfigMap{configMap("a", "x"), configMap("b", "y"), configMap("c", "z")} {
		if err := r.Create(ctx, "/configmaps/ns/"+m.Name, m, &corev1.ConfigMap{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody's hand: x is forgotten, y is another's, and so is a name that nobody has.
	for key, value := range map[string]string{"x": "", "y": "gone", "leaked": "gone"} {
		if _, err := r.client.Put(ctx, r.prefix+key, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.client.Delete(ctx, r.prefix+"x"); err != nil {
		t.Fatal(err)
	}
	assign := func(change func()) func([]runtime.Object, map[string]string) map[string]runtime.Object {
		return func(objects []runtime.Object, _ map[string]string) map[string]runtime.Object {
			out := map[string]runtime.Object{}
			for _, o := range objects {
				_, names := keys(o)
				for _, name := range names {
					out[name] = o
				}
			}
			change()
			return out
		}
	}
	// While it is decided, a gives x back and takes another, and c goes.
	err := r.Repair(ctx, assign(func() {
		if err := r.become(ctx, "a", "w"); err != nil {
			t.Error(err)
		}
		if err := r.Delete(ctx, "/configmaps/ns/c", &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"w": "a", "y": "b"}
	r.expect(t, "repaired", want)
	if err := r.Repair(ctx, assign(func() {})); err != nil {
		t.Fatal(err)
	}
	r.expect(t, "repaired again", want)
}
