// Package scheme knows the Go types of every API group that is served and how
// they are read and written.
//
// The external k8s.io/api types are registered as the internal version too, so
// no conversion between versions is needed; defaults are attached per kind.
package scheme

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// groups are the served API groups, the legacy core group first. A group's objects are stored in the
// version of it that comes first.
var groups = []struct {
	version schema.GroupVersion
	add     func(*runtime.Scheme) error
}{
	{corev1.SchemeGroupVersion, corev1.AddToScheme},
	{appsv1.SchemeGroupVersion, appsv1.AddToScheme},
	{batchv1.SchemeGroupVersion, batchv1.AddToScheme},
	{discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme},
	{coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme},
	{networkingv1.SchemeGroupVersion, networkingv1.AddToScheme},
	{nodev1.SchemeGroupVersion, nodev1.AddToScheme},
	{schedulingv1.SchemeGroupVersion, schedulingv1.AddToScheme},
	{policyv1.SchemeGroupVersion, policyv1.AddToScheme},
	{rbacv1.SchemeGroupVersion, rbacv1.AddToScheme},
	{autoscalingv2.SchemeGroupVersion, autoscalingv2.AddToScheme},
	{autoscalingv1.SchemeGroupVersion, autoscalingv1.AddToScheme},
	{authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme},
	{authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme},
	{certificatesv1.SchemeGroupVersion, certificatesv1.AddToScheme},
	{storagev1.SchemeGroupVersion, storagev1.AddToScheme},
	{admissionregistrationv1.SchemeGroupVersion, admissionregistrationv1.AddToScheme},
	{flowcontrolv1.SchemeGroupVersion, flowcontrolv1.AddToScheme},
	{resourcev1.SchemeGroupVersion, resourcev1.AddToScheme},
	{v1alpha1.GroupVersion, v1alpha1.AddToScheme},
}

// Set is a scheme with its codecs.
type Set struct {
	*runtime.Scheme
	// Public lacks the internal version; OpenAPI names are derived from it.
	Public         *runtime.Scheme
	Codecs         serializer.CodecFactory
	ParameterCodec runtime.ParameterCodec
}

// New registers every served group, and the defaults and selectable fields of
// the given kinds.
func New(kinds []resource.Definition) *Set {
	s := &Set{Scheme: runtime.NewScheme(), Public: runtime.NewScheme()}
	for _, target := range []*runtime.Scheme{s.Scheme, s.Public} {
		for _, g := range groups {
			utilruntime.Must(g.add(target))
		}
		addEvents(target)
		v1 := schema.GroupVersion{Version: "v1"}
		metav1.AddToGroupVersion(target, v1)
		target.AddUnversionedTypes(
			v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{},
		)
	}
	versions := map[string][]schema.GroupVersion{}
	for _, g := range groups {
		versions[g.version.Group] = append(versions[g.version.Group], g.version)
	}
	for _, v := range versions {
		utilruntime.Must(s.SetVersionPriority(v...))
	}
	addInternal(s.Scheme)
	addEventConversion(s.Scheme)
	addAutoscalingConversion(s.Scheme)
	addQueries(s.Scheme)
	utilruntime.Must(s.SetVersionPriority(eventsVersion))
	for _, kind := range kinds {
		addKind(s.Scheme, kind)
	}
	s.Codecs = serializer.NewCodecFactory(s.Scheme)
	s.ParameterCodec = runtime.NewParameterCodec(s.Scheme)
	return s
}

// addInternal registers each external type as its group's internal version. Where two versions have a kind,
// it is the type of the version that is stored.
func addInternal(s *runtime.Scheme) {
	for gvk, t := range s.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || gvk.Group == eventsVersion.Group || !isKindsPackage(t.PkgPath()) {
			continue
		}
		stored := s.PrioritizedVersionsForGroup(gvk.Group)[0]
		if gvk.Version != stored.Version && s.Recognizes(stored.WithKind(gvk.Kind)) {
			continue
		}
		obj, err := s.New(gvk)
		utilruntime.Must(err)
		s.AddKnownTypeWithName(
			schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind}, obj,
		)
	}
}

// isKindsPackage says whether a package holds kinds, and not what all groups share.
func isKindsPackage(path string) bool {
	return strings.HasPrefix(path, "k8s.io/api/") || path == reflect.TypeFor[v1alpha1.RolloutPolicy]().PkgPath()
}

func addKind(s *runtime.Scheme, kind resource.Definition) {
	if kind.Default != nil {
		s.AddTypeDefaultingFunc(kind.New(), func(o any) { kind.Default(o.(runtime.Object)) })
	}
	if len(kind.FieldLabels) == 0 && len(kind.FieldAlias) == 0 {
		return // the scheme's own rule: name and namespace
	}
	allowed := append([]string{"metadata.name", "metadata.namespace"}, kind.FieldLabels...)
	utilruntime.Must(s.AddFieldLabelConversionFunc(
		kind.GroupVersionKind(),
		func(label, value string) (string, string, error) {
			if alias, ok := kind.FieldAlias[label]; ok {
				return alias, value, nil
			}
			if slices.Contains(allowed, label) {
				return label, value, nil
			}
			return "", "", fmt.Errorf("field label not supported: %s", label)
		},
	))
}

// VersionFor returns the version in which a group's objects are stored.
func (s *Set) VersionFor(group string) (schema.GroupVersion, error) {
	versions := s.PrioritizedVersionsForGroup(group)
	if len(versions) == 0 {
		return schema.GroupVersion{}, fmt.Errorf("no version of API group %q is registered", group)
	}
	return versions[0], nil
}
