// Package store reads the histories of objects from the database itself.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/test/chaos/history"
)

type kept struct {
	version      schema.GroupVersion
	resource     string
	object, list func() runtime.Object
	prefix       string
}

// Kept are the kinds whose history is judged.
var Kept = []kept{
	{corev1.SchemeGroupVersion, "pods", func() runtime.Object { return &corev1.Pod{} },
		func() runtime.Object { return &corev1.PodList{} }, "/pods"},
	{corev1.SchemeGroupVersion, "nodes", func() runtime.Object { return &corev1.Node{} },
		func() runtime.Object { return &corev1.NodeList{} }, "/nodes"},
	{corev1.SchemeGroupVersion, "configmaps", func() runtime.Object { return &corev1.ConfigMap{} },
		func() runtime.Object { return &corev1.ConfigMapList{} }, "/configmaps"},
	{
		corev1.SchemeGroupVersion, "secrets",
		func() runtime.Object { return &corev1.Secret{} }, func() runtime.Object { return &corev1.SecretList{} }, "/secrets",
	},
	{appsv1.SchemeGroupVersion, "daemonsets", func() runtime.Object { return &appsv1.DaemonSet{} },
		func() runtime.Object { return &appsv1.DaemonSetList{} }, "/apps/daemonsets"},
	{appsv1.SchemeGroupVersion, "controllerrevisions", func() runtime.Object { return &appsv1.ControllerRevision{} },
		func() runtime.Object { return &appsv1.ControllerRevisionList{} }, "/apps/controllerrevisions"},
	{v1alpha1.GroupVersion, "rolloutpolicies", func() runtime.Object { return &v1alpha1.RolloutPolicy{} },
		func() runtime.Object { return &v1alpha1.RolloutPolicyList{} }, "/everynode.io/rolloutpolicies"},
	{v1alpha1.GroupVersion, "daemonsetrollouts", func() runtime.Object { return &v1alpha1.DaemonSetRollout{} },
		func() runtime.Object { return &v1alpha1.DaemonSetRolloutList{} }, "/everynode.io/daemonsetrollouts"},
	{
		v1alpha1.GroupVersion, "daemonsetvariants", func() runtime.Object { return &v1alpha1.DaemonSetVariant{} },
		func() runtime.Object { return &v1alpha1.DaemonSetVariantList{} }, "/everynode.io/daemonsetvariants",
	},
}

// Kinds are Kubernetes' kinds and Everynode's own.
var (
	Kinds = func() *runtime.Scheme {
		s := runtime.NewScheme()
		utilruntime.Must(scheme.AddToScheme(s))
		utilruntime.Must(v1alpha1.AddToScheme(s))
		return s
	}()
	codecs = serializer.NewCodecFactory(Kinds)
)

// Unencrypted is a configuration for servers that has Secrets be stored as they are, for Watch to read.
const Unencrypted = `{"kind": "EncryptionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1",
"resources": [{"resources": ["secrets"], "providers": [{"identity": {}}]}]}`

// endOfHistory is the object that is written when all else has been.
const endOfHistory = "end-of-history"

// Watch reads the database itself, from its first revision on and past every
// cache, and hands each change over. It returns when ctx ends or, unless follow,
// when all is read.
func Watch(ctx context.Context, db *etcd.Server, i int, follow bool, see func(history.Event)) error {
	store, err := open(db, i)
	if err != nil {
		return err
	}
	if follow {
		_, err = read(ctx, store, i, 1, see)
		return err
	}
	// Nobody else writes any more, so all is read when this has come.
	if err := store.Create(ctx, Kept[i].prefix+"/"+endOfHistory, mark(i), nil, 0); err != nil {
		return fmt.Errorf("end the history of %s: %w", Kept[i].resource, err)
	}
	_, err = read(ctx, store, i, 1, see)
	return err
}

// Since reads what a database that nobody writes to has of a kind, after a revision. It returns up to where, and leaves
// the objects as they were.
func Since(ctx context.Context, db *etcd.Server, resource string, revision int64,
	see func(history.Event)) (int64, error) {
	i := slices.IndexFunc(Kept, func(k kept) bool { return k.resource == resource })
	store, err := open(db, i)
	if err != nil {
		return 0, err
	}
	key := Kept[i].prefix + "/" + endOfHistory
	if err := store.Create(ctx, key, mark(i), nil, 0); err != nil {
		return 0, fmt.Errorf("end the history of %s: %w", resource, err)
	}
	end, err := read(ctx, store, i, revision, see)
	forgot := store.Delete(ctx, key, Kept[i].object(), nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	if forgot != nil {
		forgot = fmt.Errorf("take away the end of the history of %s: %w", resource, forgot)
	}
	return end, errors.Join(err, forgot)
}

// mark is the object at the end of a kind's history.
func mark(i int) runtime.Object {
	last := Kept[i].object()
	last.(metav1.Object).SetName(endOfHistory)
	return last
}

func open(db *etcd.Server, i int) (storage.Interface, error) {
	k := Kept[i]
	format := runtime.ContentTypeProtobuf
	if k.version == v1alpha1.GroupVersion {
		format = runtime.ContentTypeJSON
	}
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), format)
	codec := codecs.CodecForVersions(info.Serializer, codecs.UniversalDeserializer(), k.version, k.version)
	config := storagebackend.NewDefaultConfig("/registry", codec).
		ForResource(schema.GroupResource{Group: k.version.Group, Resource: k.resource})
	return db.Open(config, k.object, k.list, k.prefix)
}

// read hands over each change after a revision, up to the end of the history, whose revision it returns.
func read(ctx context.Context, from storage.Interface, i int, revision int64, see func(history.Event)) (int64, error) {
	k := Kept[i]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := from.Watch(ctx, k.prefix+"/", storage.ListOptions{
		ResourceVersion: strconv.FormatInt(revision, 10), Recursive: true, Predicate: storage.Everything,
	})
	if err != nil {
		return 0, fmt.Errorf("watch %s in the database: %w", k.resource, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		object, ok := e.Object.(metav1.Object)
		if e.Type == watch.Error || !ok {
			return 0, fmt.Errorf("watch %s in the database: %v", k.resource, e.Object)
		}
		revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the revision of a change of %s: %w", k.resource, err)
		}
		switch {
		case object.GetName() != endOfHistory:
			see(history.Event{Revision: revision, Object: object, Deleted: e.Type == watch.Deleted})
		case e.Type == watch.Added:
			return revision, nil
		}
	}
	return 0, ctx.Err()
}
