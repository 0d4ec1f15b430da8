package answers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/registry"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// server does what the API server does with a POST up to the point where the
// object would be stored.
type server struct {
	scheme *scheme.Set
	kinds  map[string]kind
}

type kind struct {
	resource.Definition
	create rest.RESTCreateStrategy
}

func newServer(t *testing.T) *server {
	t.Helper()
	kinds := registry.Kinds()
	s := &server{scheme: scheme.New(kinds), kinds: map[string]kind{}}
	for _, d := range kinds {
		built, err := d.Build(s.scheme, nowhere{})
		if err != nil {
			t.Fatal(err)
		}
		s.kinds[d.Plural] = kind{d, built.Store.CreateStrategy}
	}
	return s
}

// nowhere is where objects are stored that are never stored.
type nowhere struct{}

func (nowhere) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig: &storagebackend.ConfigForResource{}, ResourcePrefix: resource.String(),
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object,
			func() runtime.Object, storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
			return struct{ storage.Interface }{}, func() {}, nil
		},
	}, nil
}

func (s *server) post(t *testing.T, a answer) answer {
	t.Helper()
	obj, warnings, err := s.create(a)
	if err != nil {
		return refusal(t, err)
	}
	k := s.kinds[a.resource()]
	raw, err := s.stored(k, obj)
	if err != nil {
		t.Fatal(err)
	}
	got := answer{Code: http.StatusCreated, Warnings: warnings}
	if err := json.Unmarshal(raw, &got.Object); err != nil {
		t.Fatal(err)
	}
	return got
}

// stored returns the object as it is read back from storage, where empty lists
// and missing ones are the same.
func (s *server) stored(k kind, obj runtime.Object) ([]byte, error) {
	info, _ := runtime.SerializerInfoForMediaType(s.scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	hub := schema.GroupVersion{Group: k.GroupVersion.Group, Version: runtime.APIVersionInternal}
	raw, err := runtime.Encode(s.scheme.Codecs.EncoderForVersion(info.Serializer, k.GroupVersion), obj)
	if err != nil {
		return nil, err
	}
	back, err := runtime.Decode(s.scheme.Codecs.DecoderToVersion(info.Serializer, hub), raw)
	if err != nil {
		return nil, err
	}
	return runtime.Encode(s.scheme.Codecs.LegacyCodec(k.GroupVersion), back)
}

func refusal(t *testing.T, err error) answer {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("error without a status: %v", err)
	}
	return refusalOf(status.Status())
}

func refusalOf(st metav1.Status) answer {
	got := answer{Code: int(st.Code), Reason: string(st.Reason), Message: st.Message}
	if st.Details != nil {
		for _, c := range st.Details.Causes {
			got.Causes = append(got.Causes, [3]string{c.Field, string(c.Type), c.Message})
		}
	}
	return got
}

func (s *server) create(a answer) (runtime.Object, []string, error) {
	k := s.kinds[a.resource()]
	info, _ := runtime.SerializerInfoForMediaType(s.scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	internal := schema.GroupVersion{Group: k.GroupVersion.Group, Version: runtime.APIVersionInternal}
	gvk := k.GroupVersionKind()
	obj, _, err := s.scheme.Codecs.DecoderToVersion(info.StrictSerializer, internal).Decode(a.Request, &gvk, k.New())
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, gvk.Kind, err))
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, err
	}
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(a.namespace(), m); err != nil {
		return nil, nil, err
	}
	admit(obj)
	ctx := request.WithNamespace(context.Background(), a.namespace())
	rest.FillObjectMetaSystemFields(m)
	if err := rest.BeforeCreate(k.create, ctx, obj); err != nil {
		return nil, nil, err
	}
	return obj, k.create.WarningsOnCreate(ctx, obj), nil
}

// admit does what the admission plugins do that the recorded objects went through.
func admit(obj runtime.Object) {
	if node, ok := obj.(*corev1.Node); ok {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = ptr.To[int32](0), ptr.To(corev1.PreemptLowerPriority)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !tolerates(pod, key) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
			})
		}
	}
}

func tolerates(pod *corev1.Pod, key string) bool {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
