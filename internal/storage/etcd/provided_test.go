package etcd

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
	"github.com/everynode/everynode/internal/storage/provided"
)

// A write that depends on another object is done only while that one is as it was seen; what fails for its own object
// fails as ever.
func TestWritesThatDependOnAnotherObject(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c := storagebackend.NewDefaultConfig("/registry",
		clientscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)).ForResource(schema.GroupResource{Resource: "configmaps"})
	maps, err := s.Open(c, func() runtime.Object { return &corev1.ConfigMap{} },
		func() runtime.Object { return &corev1.ConfigMapList{} }, "/configmaps")
	if err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, name string) (*corev1.ConfigMap, error) {
		out := &corev1.ConfigMap{}
		return out, maps.Create(ctx, "/configmaps/ns/"+name, configMap(name), out, 0)
	}
	change := func(ctx context.Context, name, to string) error {
		return maps.GuaranteedUpdate(ctx, "/configmaps/ns/"+name, &corev1.ConfigMap{}, false, nil,
			storage.SimpleUpdate(func(old runtime.Object) (runtime.Object, error) {
				m := old.(*corev1.ConfigMap)
				m.Data = map[string]string{"is": to}
				return m, nil
			}), nil)
	}
	version := func(m *corev1.ConfigMap) uint64 {
		v, err := maps.Versioner().ObjectResourceVersion(m)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	other, err := create(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := create(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	while, condition := provided.While(t.Context())
	if err := change(while, "one", "unconditional"); err != nil {
		t.Errorf("a context that depends on nothing yet: %v", err)
	}
	condition.Still("/configmaps/ns/other", version(other))
	if err := change(while, "one", "changed"); err != nil {
		t.Errorf("while the other is as it was: %v", err)
	}
	if _, err := create(while, "made"); err != nil {
		t.Errorf("while the other is as it was: %v", err)
	}
	if _, err := create(while, "made"); !storage.IsExist(err) {
		t.Errorf("the second of a name: %v", err)
	}
	if err := change(t.Context(), "other", "another"); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		var changed *apistorage.ChangedError
		if err := change(while, "one", "too late"); !errors.As(err, &changed) || changed.Key != "/registry/configmaps/ns/other" {
			t.Errorf("%s: a change ends with %v", what, err)
		}
		if _, err := create(while, "late"); !errors.As(err, &changed) {
			t.Errorf("%s: a creation ends with %v", what, err)
		}
	}
	refused("the other was changed")
	if err := maps.Delete(t.Context(), "/configmaps/ns/other", &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil,
		storage.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("the other is gone")
	if _, err := create(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	refused("the other was made again")
	got := &corev1.ConfigMap{}
	if err := maps.Get(t.Context(), "/configmaps/ns/one", storage.GetOptions{}, got); err != nil || got.Data["is"] != "changed" {
		t.Errorf("what is left is %v, %v", got.Data, err)
	}
	if err := maps.Get(t.Context(), "/configmaps/ns/late", storage.GetOptions{}, got); !storage.IsNotFound(err) {
		t.Errorf("what was refused is there: %v", err)
	}
}
