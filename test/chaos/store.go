package main

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/everynode/everynode/internal/etcd"
	"github.com/everynode/everynode/test/chaos/history"
)

// kept are the kinds whose history is judged.
var kept = []struct {
	version      schema.GroupVersion
	resource     string
	object, list func() runtime.Object
	prefix       string
}{
	{corev1.SchemeGroupVersion, "pods", func() runtime.Object { return &corev1.Pod{} }, func() runtime.Object { return &corev1.PodList{} }, "/pods"},
	{corev1.SchemeGroupVersion, "nodes", func() runtime.Object { return &corev1.Node{} }, func() runtime.Object { return &corev1.NodeList{} }, "/nodes"},
	{appsv1.SchemeGroupVersion, "daemonsets", func() runtime.Object { return &appsv1.DaemonSet{} }, func() runtime.Object { return &appsv1.DaemonSetList{} }, "/apps/daemonsets"},
	{appsv1.SchemeGroupVersion, "controllerrevisions", func() runtime.Object { return &appsv1.ControllerRevision{} }, func() runtime.Object { return &appsv1.ControllerRevisionList{} }, "/apps/controllerrevisions"},
}

// endOfHistory is the object that is written when all else has been.
const endOfHistory = "end-of-history"

// watchStore reads the database itself, from its first revision on and past every
// cache, and hands each change over. It returns when ctx ends or, unless follow,
// when all is read.
func watchStore(ctx context.Context, db *etcd.Server, i int, follow bool, see func(history.Event)) error {
	k := kept[i]
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	codec := scheme.Codecs.CodecForVersions(info.Serializer, scheme.Codecs.UniversalDeserializer(), k.version, k.version)
	config := storagebackend.NewDefaultConfig("/registry", codec).ForResource(schema.GroupResource{Group: k.version.Group, Resource: k.resource})
	store, err := db.Open(config, k.object, k.list, k.prefix)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := store.Watch(ctx, k.prefix+"/", storage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: storage.Everything})
	if err != nil {
		return fmt.Errorf("watch %s in the database: %w", k.resource, err)
	}
	defer w.Stop()
	if !follow {
		// Nobody else writes any more, so all is read when this has come.
		last := k.object()
		last.(metav1.Object).SetName(endOfHistory)
		if err := store.Create(ctx, k.prefix+"/"+endOfHistory, last, nil, 0); err != nil {
			return fmt.Errorf("end the history of %s: %w", k.resource, err)
		}
	}
	for e := range w.ResultChan() {
		object, ok := e.Object.(metav1.Object)
		if e.Type == watch.Error || !ok {
			return fmt.Errorf("watch %s in the database: %v", k.resource, e.Object)
		}
		revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		if err != nil {
			return fmt.Errorf("read the revision of a change of %s: %w", k.resource, err)
		}
		if object.GetName() == endOfHistory {
			return nil
		}
		see(history.Event{Revision: revision, Object: object, Deleted: e.Type == watch.Deleted})
	}
	return ctx.Err()
}
