package etcd

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
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

// reserving is the storage of a test, and another way to what it keeps.
type reserving struct {
	*apistorage.Reserving
	client *clientv3.Client
	prefix string
}

func reservingConfigMaps(t *testing.T) reserving {
	t.Helper()
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c := storagebackend.NewDefaultConfig("/registry",
		clientscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)).ForResource(schema.GroupResource{Resource: "configmaps"})
	opened, err := s.OpenReserving(c, func() runtime.Object { return &corev1.ConfigMap{} },
		func() runtime.Object { return &corev1.ConfigMapList{} }, "/configmaps", keys)
	if err != nil {
		t.Fatal(err)
	}
	return reserving{Reserving: opened.(*apistorage.Reserving), client: s.newClient().Client,
		prefix: "/registry/ranges/"}
}

func configMap(name string, holds ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Data: map[string]string{}}
	for _, k := range holds {
		m.Data[k] = ""
	}
	return m
}

func (r reserving) expect(t *testing.T, what string, want map[string]string) {
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
func (r reserving) become(ctx context.Context, name string, holds ...string) error {
	return r.GuaranteedUpdate(ctx, "/configmaps/ns/"+name, &corev1.ConfigMap{}, false, nil,
		storage.SimpleUpdate(func(old runtime.Object) (runtime.Object, error) {
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
	var taken *apistorage.TakenError
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
	err := r.GuaranteedUpdate(ctx, "/configmaps/ns/a", &corev1.ConfigMap{}, false, nil,
		storage.SimpleUpdate(func(old runtime.Object) (runtime.Object, error) {
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
	if err := r.become(ctx, "a", "u"); err != nil {
		t.Error(err)
	}
	r.expect(t, "given back, and nothing taken", map[string]string{"x": "b", "u": "a"})

	for _, name := range []string{"a", "b"} {
		if err := r.Delete(ctx, "/configmaps/ns/"+name, &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil,
			storage.DeleteOptions{}); err != nil {
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
	assign := func(change func()) func([]runtime.Object, map[string]string) (map[string]runtime.Object, []string) {
		return func(objects []runtime.Object, holders map[string]string) (map[string]runtime.Object, []string) {
			out := map[string]runtime.Object{}
			for _, o := range objects {
				_, names := keys(o)
				for _, name := range names {
					out[name] = o
				}
			}
			var free []string
			for name := range holders {
				if out[name] == nil {
					free = append(free, name)
				}
			}
			change()
			return out, free
		}
	}
	// While it is decided, a gives x back and takes another, and c goes.
	err := r.Repair(ctx, assign(func() {
		if err := r.become(ctx, "a", "w"); err != nil {
			t.Error(err)
		}
		if err := r.Delete(ctx, "/configmaps/ns/c", &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil,
			storage.DeleteOptions{}); err != nil {
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

// shown is what is kept beside the name "ip-" of a ConfigMap here.
func shownBeside(holder runtime.Object, name string) (string, []byte, error) {
	if !strings.HasPrefix(name, "ip-") {
		return "", nil, nil
	}
	key := "/registry/addresses/" + name
	if holder == nil {
		return key, nil, nil
	}
	return key, []byte(holder.(*corev1.ConfigMap).Name), nil
}

func (r reserving) expectShown(t *testing.T, what string, want map[string]string) {
	t.Helper()
	answer, err := r.client.Get(t.Context(), "/registry/addresses/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, kv := range answer.Kvs {
		got[strings.TrimPrefix(string(kv.Key), "/registry/addresses/")] = string(kv.Value)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: shown is %v, want %v", what, got, want)
	}
}

func TestWhatIsShownFollowsNames(t *testing.T) {
	r, ctx := reservingConfigMaps(t), t.Context()
	r.ShowNames(shownBeside)
	create := func(name string, holds ...string) error {
		return r.Create(ctx, "/configmaps/ns/"+name, configMap(name, holds...), &corev1.ConfigMap{}, 0)
	}
	if err := errors.Join(create("a", "ip-1", "port-1"), create("b", "ip-2")); err != nil {
		t.Fatal(err)
	}
	r.expectShown(t, "created", map[string]string{"ip-1": "a", "ip-2": "b"})
	if err := create("c", "ip-3", "ip-1"); err == nil {
		t.Error("a name that is held is given again")
	}
	r.expectShown(t, "a refused write", map[string]string{"ip-1": "a", "ip-2": "b"})
	if err := r.become(ctx, "a", "ip-4", "port-1"); err != nil {
		t.Fatal(err)
	}
	r.expectShown(t, "updated", map[string]string{"ip-4": "a", "ip-2": "b"})
	// What another holds by now stays, whoever goes.
	if _, err := r.client.Put(ctx, r.prefix+"ip-2", "somebody"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := r.Delete(ctx, "/configmaps/ns/"+name, &corev1.ConfigMap{}, nil, storage.ValidateAllObjectFunc, nil,
			storage.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	r.expectShown(t, "deleted", map[string]string{"ip-2": "b"})
}

func TestNamesAreTakenOnlyWhileTheGuardHolds(t *testing.T) {
	r, ctx := reservingConfigMaps(t), t.Context()
	const network = "/registry/network"
	put := func(value string) int64 {
		answer, err := r.client.Put(ctx, network, value)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Header.Revision
	}
	version, meanwhile, asked := int64(0), func() {}, 0
	r.GuardNames(func(context.Context, runtime.Object, []string) (map[string]int64, error) {
		asked++
		meanwhile()
		return map[string]int64{network: version}, nil
	})
	create := func(name string, holds ...string) error {
		return r.Create(ctx, "/configmaps/ns/"+name, configMap(name, holds...), &corev1.ConfigMap{}, 0)
	}
	if err := create("a", "x"); err != nil {
		t.Errorf("one that is not there: %v", err)
	}
	version = put("open")
	if err := create("b", "y"); err != nil {
		t.Errorf("one that is as it was: %v", err)
	}
	meanwhile = func() { put("closed") }
	var changed *apistorage.ChangedError
	if err := create("c", "z"); !errors.As(err, &changed) || changed.Key != network {
		t.Errorf("one that changes between: %v", err)
	}
	if err := r.become(ctx, "b", "y", "w"); !errors.As(err, &changed) {
		t.Errorf("an update to a name more: %v", err)
	}
	r.expect(t, "refused", map[string]string{"x": "a", "y": "b"})
	// Who takes no name is not concerned, and who is too late for other reasons is told those.
	asked = 0
	if err := errors.Join(r.become(ctx, "b"), create("d")); err != nil || asked != 0 {
		t.Errorf("without a name: %v, asked %d times", err, asked)
	}
	if err := create("a", "y"); !storage.IsExist(err) {
		t.Errorf("an object that exists: %v", err)
	}
	var taken *apistorage.TakenError
	if err := create("e", "x"); !errors.As(err, &taken) {
		t.Errorf("a name that is held: %v", err)
	}
}

func TestCorrectionsAreOfWhatIsStillSo(t *testing.T) {
	r, ctx := reservingConfigMaps(t), t.Context()
	r.ShowNames(shownBeside)
	for _, m := range []*corev1.ConfigMap{configMap("a", "ip-1"), configMap("b")} {
		if err := r.Create(ctx, "/configmaps/ns/"+m.Name, m, &corev1.ConfigMap{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	read := func() map[string]runtime.Object {
		objects, err := r.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]runtime.Object{}
		for _, o := range objects {
			out[o.(*corev1.ConfigMap).Name] = o
		}
		return out
	}
	old := read()
	gone := func(key string) {
		if _, err := r.client.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	gone("/registry/addresses/ip-1")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(r.ShowAgain(ctx, old["a"], "ip-1", 7))
	r.expectShown(t, "something else is there", map[string]string{})
	must(r.ShowAgain(ctx, old["b"], "ip-1", 0))
	r.expectShown(t, "it is another's", map[string]string{})
	must(r.ShowAgain(ctx, old["a"], "ip-1", 0))
	r.expectShown(t, "shown again", map[string]string{"ip-1": "a"})

	must(r.Take(ctx, old["b"], "ip-1"))
	must(r.Take(ctx, old["b"], "free"))
	r.expect(t, "taken", map[string]string{"ip-1": "a", "free": "b"})
	must(r.Free(ctx, "ip-1", "another", "none"))
	must(r.Discard(ctx, old["a"], "ip-1"))
	if len(read()) != 2 {
		t.Error("an object is discarded whose name is held")
	}
	must(r.Free(ctx, "ip-1", "a", "none"))
	r.expect(t, "freed", map[string]string{"free": "b"})
	if err := r.become(ctx, "a", "other"); err != nil {
		t.Fatal(err)
	}
	must(r.Discard(ctx, old["a"], "ip-1"))
	if len(read()) != 2 {
		t.Error("an object is discarded that has changed")
	}
	must(r.Discard(ctx, read()["a"], "ip-1"))
	if len(read()) != 1 {
		t.Error("what shows nothing stays")
	}
}
