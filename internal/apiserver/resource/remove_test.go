package resource_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/registry/pod"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/scheme"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// database keeps objects in a database of its own, below the library's watch cache.
type database struct {
	scheme *scheme.Set
	server *etcd.Server
	end    func(func())
}

func (d database) GetRESTOptions(of schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	info, _ := runtime.SerializerInfoForMediaType(d.scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	codec := d.scheme.Codecs.CodecForVersions(info.Serializer, d.scheme.Codecs.UniversalDeserializer(), corev1.SchemeGroupVersion, schema.GroupVersion{Version: runtime.APIVersionInternal})
	decorate := func(c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newObject, newList func() runtime.Object,
		attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		raw, err := d.server.Open(c, newObject, newList, prefix)
		if err != nil {
			return nil, nil, err
		}
		watched, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: raw, Versioner: storage.APIObjectVersioner{}, GroupResource: of, ResourcePrefix: prefix, KeyFunc: key,
			NewFunc: newObject, NewListFunc: newList, GetAttrsFunc: attrs, IndexerFuncs: triggers, Indexers: indexers, Codec: codec,
			EventsHistoryWindow: c.EventsHistoryWindow,
		})
		if err != nil {
			return nil, nil, err
		}
		delegator := cacher.NewCacheDelegator(watched, raw)
		d.end(func() { delegator.Stop(); watched.Stop() })
		return delegator, func() {}, nil
	}
	return generic.RESTOptions{
		StorageConfig: storagebackend.NewDefaultConfig("/registry", codec).ForResource(of), ResourcePrefix: of.Resource,
		Decorator: decorate, EnableGarbageCollection: true,
	}, nil
}

func openPods(t *testing.T) *resource.Storage {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	definition := pod.Definition()
	types := scheme.New([]resource.Definition{definition})
	built, err := definition.Build(types, database{types, server, t.Cleanup})
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// deletion is one case: a pod, and how it is deleted.
type deletion struct {
	name    string
	edit    func(*corev1.Pod)
	mark    *int64 // grace period of an earlier deletion, nil for none
	options func(*corev1.Pod) *metav1.DeleteOptions
	refused error // by admission
	// oneWrite: the pod goes in one write.
	oneWrite bool
}

func seconds(grace int64, edits ...func(*metav1.DeleteOptions)) func(*corev1.Pod) *metav1.DeleteOptions {
	return func(*corev1.Pod) *metav1.DeleteOptions {
		o := &metav1.DeleteOptions{GracePeriodSeconds: &grace}
		for _, edit := range edits {
			edit(o)
		}
		return o
	}
}

// expecting asks for a pod of this UID or version.
func expecting(preconditions func(*corev1.Pod) *metav1.Preconditions) func(*corev1.Pod) *metav1.DeleteOptions {
	return func(p *corev1.Pod) *metav1.DeleteOptions {
		return &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: preconditions(p)}
	}
}

var deletions = map[string]deletion{
	"the last step":                  {mark: ptr.To[int64](30), options: seconds(0), oneWrite: true},
	"the last step of a short grace": {mark: ptr.To[int64](1), options: seconds(0), oneWrite: true},
	"by UID": {mark: ptr.To[int64](30), oneWrite: true, options: expecting(func(p *corev1.Pod) *metav1.Preconditions {
		return &metav1.Preconditions{UID: &p.UID}
	})},
	"by version": {mark: ptr.To[int64](30), oneWrite: true, options: expecting(func(p *corev1.Pod) *metav1.Preconditions {
		return &metav1.Preconditions{ResourceVersion: &p.ResourceVersion}
	})},
	"another UID": {mark: ptr.To[int64](30), options: expecting(func(*corev1.Pod) *metav1.Preconditions {
		return &metav1.Preconditions{UID: ptr.To[types.UID]("other")}
	})},
	"another version": {mark: ptr.To[int64](30), options: expecting(func(*corev1.Pod) *metav1.Preconditions {
		return &metav1.Preconditions{ResourceVersion: ptr.To("1")}
	})},
	"not marked, forced":        {options: seconds(0)},
	"not marked":                {options: seconds(30)},
	"not marked, on no node":    {edit: func(p *corev1.Pod) { p.Spec.NodeName = "" }, options: seconds(0)},
	"marked, with a finalizer":  {mark: ptr.To[int64](30), edit: func(p *corev1.Pod) { p.Finalizers = []string{"example.com/f"} }, options: seconds(0)},
	"a finalizer, not marked":   {edit: func(p *corev1.Pod) { p.Finalizers = []string{"example.com/f"} }, options: seconds(0)},
	"marked, a shorter grace":   {mark: ptr.To[int64](30), options: seconds(5)},
	"marked, the same grace":    {mark: ptr.To[int64](30), options: seconds(30)},
	"marked, a longer grace":    {mark: ptr.To[int64](30), options: seconds(60)},
	"marked, no grace said":     {mark: ptr.To[int64](30), options: func(*corev1.Pod) *metav1.DeleteOptions { return &metav1.DeleteOptions{} }},
	"marked, a negative grace":  {mark: ptr.To[int64](30), options: seconds(-1)},
	"marked, no options":        {mark: ptr.To[int64](30), options: func(*corev1.Pod) *metav1.DeleteOptions { return nil }},
	"marked, a dry run":         {mark: ptr.To[int64](30), options: seconds(0, func(o *metav1.DeleteOptions) { o.DryRun = []string{"All"} })},
	"marked, orphan":            {mark: ptr.To[int64](30), options: seconds(0, func(o *metav1.DeleteOptions) { o.PropagationPolicy = ptr.To(metav1.DeletePropagationOrphan) })},
	"marked, in the foreground": {mark: ptr.To[int64](30), options: seconds(0, func(o *metav1.DeleteOptions) { o.PropagationPolicy = ptr.To(metav1.DeletePropagationForeground) })},
	"marked, in the background": {mark: ptr.To[int64](30), options: seconds(0, func(o *metav1.DeleteOptions) { o.PropagationPolicy = ptr.To(metav1.DeletePropagationBackground) })},
	"marked, no such policy":    {mark: ptr.To[int64](30), options: seconds(0, func(o *metav1.DeleteOptions) { o.PropagationPolicy = ptr.To[metav1.DeletionPropagation]("Nonsense") })},
	"marked, refused":           {mark: ptr.To[int64](30), options: seconds(0), refused: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no"))},
	"marked, has ended":         {mark: ptr.To[int64](30), edit: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, options: seconds(0), oneWrite: true},
	"a pod that does not exist": {edit: func(p *corev1.Pod) { p.Name = "" }, options: seconds(0)},
}

// TestRemovalIsAsTheLibrarys deletes equal pods our way and the library's. Answer, error, and what is left must be the
// same; the last step of a graceful deletion takes one write.
func TestRemovalIsAsTheLibrarys(t *testing.T) {
	built := openPods(t)
	main := built.Main.(rest.GracefulDeleter)
	number := 0
	for name, c := range deletions {
		number++
		c.name = fmt.Sprintf("p-%d", number) // The library's cache knows no pod of this name from before.
		t.Run(name, func(t *testing.T) {
			ours, library := c.run(t, built, main, "ours"), c.run(t, built, built.Store, "library")
			if ours.text != library.text {
				t.Errorf("it is\n%s\nthe library's way\n%s", ours.text, library.text)
			}
			if one := ours.writes == 1 && strings.Contains(ours.text, "gone"); one != c.oneWrite {
				t.Errorf("%d writes, want one for a pod that goes: %v", ours.writes, c.oneWrite)
			}
		})
	}
}

type deleted struct {
	text   string
	writes int64
}

func (c deletion) run(t *testing.T, built *resource.Storage, way rest.GracefulDeleter, namespace string) deleted {
	t.Helper()
	ctx := request.WithNamespace(t.Context(), namespace)
	p := c.create(ctx, t, built)
	admitted := 0
	admit := func(context.Context, runtime.Object) error { admitted++; return c.refused }
	before := version(ctx, t, built)
	out, done, err := way.Delete(ctx, p.Name, admit, c.options(p))
	after := version(ctx, t, built)
	if err != nil {
		out = nil // The library's is empty sometimes.
	}
	text := fmt.Sprintf("answer %s, done %v, error %v, asked admission %v", show(out), done, err, admitted > 0)
	left, err := built.Store.Get(ctx, p.Name, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		text += ", gone"
	} else {
		text += ", left " + show(left)
	}
	// Looking for the version costs a write itself.
	return deleted{strings.NewReplacer(namespace, "NAMESPACE", string(p.UID), "UID", "("+p.ResourceVersion+")", "(VERSION)").Replace(text), after - before - 1}
}

// create stores the pod of a case as it is before the deletion.
func (c deletion) create(ctx context.Context, t *testing.T, built *resource.Storage) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: request.NamespaceValue(ctx)},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if c.edit != nil {
		c.edit(p)
	}
	if p.Name == "" {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}
	}
	status := p.Status
	built.Definition.Default(p)
	obj, err := built.Store.Create(ctx, p, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status.Phase != "" {
		end := func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			p := old.(*corev1.Pod).DeepCopy()
			p.Status.Phase = status.Phase
			return p, nil
		}
		// A phase that the node alone decides: nothing marks the pod before.
		if c.mark != nil {
			c.markIt(ctx, t, built)
		}
		obj, _, err = built.StatusStore.Update(ctx, c.name, rest.DefaultUpdatedObjectInfo(nil, end), nil, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	} else if c.mark != nil {
		obj = c.markIt(ctx, t, built)
	}
	return obj.(*corev1.Pod)
}

func (c deletion) markIt(ctx context.Context, t *testing.T, built *resource.Storage) runtime.Object {
	t.Helper()
	obj, _, err := built.Store.Delete(ctx, c.name, rest.ValidateAllObjectFunc, metav1.NewDeleteOptions(*c.mark))
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// version is that of the database: of a pod that was just written.
func version(ctx context.Context, t *testing.T, built *resource.Storage) int64 {
	t.Helper()
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: request.NamespaceValue(ctx)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	built.Definition.Default(probe)
	obj, err := built.Store.Create(ctx, probe, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var v int64
	if _, err := fmt.Sscan(obj.(*corev1.Pod).ResourceVersion, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// show is what must be the same: no UIDs, versions and times of creation.
func show(obj runtime.Object) string {
	p, ok := obj.(*corev1.Pod)
	if !ok || p == nil {
		return fmt.Sprintf("%T", obj)
	}
	leaves := "never"
	if p.DeletionTimestamp != nil {
		// What is compared is at most a few seconds old; a slow machine makes more of them.
		switch left := time.Until(p.DeletionTimestamp.Time); {
		case left < 15*time.Second:
			leaves = "at once"
		case left < 45*time.Second:
			leaves = "half a minute"
		default:
			leaves = "a minute"
		}
	}
	grace := "none"
	if p.DeletionGracePeriodSeconds != nil {
		grace = fmt.Sprint(*p.DeletionGracePeriodSeconds)
	}
	return fmt.Sprintf("%s: leaves in %s, grace %s, generation %d, finalizers %v", p.Name, leaves, grace, p.Generation, p.Finalizers)
}

// cached begins each update with an object as it was, as the library's watch cache does when it is behind.
type cached struct {
	storage.Interface
	old runtime.Object
}

func (c cached) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions,
	update storage.UpdateFunc, present runtime.Object) error {
	_, _, _ = update(c.old.DeepCopyObject(), storage.ResponseMeta{})
	return c.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, present)
}

// TestGraceOfAnEarlierPodIsForgotten deletes a pod while the cache shows another one of its name, that had ended.
func TestGraceOfAnEarlierPodIsForgotten(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		graceOfAnEarlierPodIsForgotten(t, func(ctx context.Context, main any) error {
			_, _, err := main.(rest.GracefulDeleter).Delete(ctx, "p", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
			return err
		})
	})
	t.Run("with others", func(t *testing.T) {
		graceOfAnEarlierPodIsForgotten(t, func(ctx context.Context, main any) error {
			_, err := main.(rest.CollectionDeleter).DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, nil)
			return err
		})
	})
}

func graceOfAnEarlierPodIsForgotten(t *testing.T, remove func(ctx context.Context, main any) error) {
	t.Helper()
	built := openPods(t)
	ctx := request.WithNamespace(t.Context(), "default")
	p := deletion{name: "p"}.create(ctx, t, built)
	old := p.DeepCopy()
	old.UID, old.Status.Phase = "earlier", corev1.PodSucceeded
	built.Store.Storage.Storage = cached{built.Store.Storage.Storage, old}
	if err := remove(ctx, built.Main); err != nil {
		t.Fatal(err)
	}
	out, err := built.Store.Get(ctx, "p", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if grace := out.(*corev1.Pod).DeletionGracePeriodSeconds; !ptr.Equal(grace, ptr.To[int64](30)) {
		t.Errorf("it leaves with %s", show(out))
	}
}
