// Package scale serves the scale subresource of workloads that have a number of
// replicas.
package scale

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// REST reads and writes the number of replicas of a workload.
type REST struct{ store *genericregistry.Store }

// New returns the subresource over the workload's store.
func New(store *genericregistry.Store) *REST { return &REST{store: store} }

var (
	_ rest.Patcher                  = &REST{}
	_ rest.GroupVersionKindProvider = &REST{}
)

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (r *REST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

// New implements rest.Storage.
func (r *REST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy implements rest.Storage.
func (r *REST) Destroy() {}

// Get implements rest.Getter.
func (r *REST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return scaleOf(obj)
}

// Update implements rest.Updater: it changes the replicas and nothing else.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	out, _, err := r.store.Update(
		ctx, name, &replicasInfo{info: resource.BlameRequest(info), validate: update}, create,
		rest.ValidateAllObjectUpdateFunc, false, options,
	)
	if err != nil {
		return nil, false, err
	}
	scale, err := scaleOf(out)
	return scale, false, err
}

// replicasInfo turns a change of a Scale into a change of the workload.
type replicasInfo struct {
	info     rest.UpdatedObjectInfo
	validate rest.ValidateObjectUpdateFunc
}

// Preconditions implements rest.UpdatedObjectInfo.
func (i *replicasInfo) Preconditions() *metav1.Preconditions { return i.info.Preconditions() }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (i *replicasInfo) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	before, err := scaleOf(old)
	if err != nil {
		return nil, err
	}
	changed, err := i.info.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	scale, ok := changed.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("expected input object type to be Scale, but %T", changed))
	}
	if scale.Spec.Replicas < 0 {
		problem := field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0")
		return nil, apierrors.NewInvalid(
			autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), scale.Name, field.ErrorList{problem},
		)
	}
	if i.validate != nil {
		if err := i.validate(ctx, scale, before); err != nil {
			return nil, err
		}
	}
	out := old.DeepCopyObject()
	switch o := out.(type) {
	case *appsv1.Deployment:
		o.Spec.Replicas = &scale.Spec.Replicas
	case *appsv1.ReplicaSet:
		o.Spec.Replicas = &scale.Spec.Replicas
	case *appsv1.StatefulSet:
		o.Spec.Replicas = &scale.Spec.Replicas
	case *corev1.ReplicationController:
		o.Spec.Replicas = &scale.Spec.Replicas
	}
	// The caller's resourceVersion makes the write conditional, as for any object.
	accessor, err := meta.Accessor(out)
	if err != nil {
		return nil, err
	}
	if scale.ResourceVersion != "" {
		accessor.SetResourceVersion(scale.ResourceVersion)
	}
	return out, nil
}

func scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	var m *metav1.ObjectMeta
	var spec *int32
	var status int32
	var selector *metav1.LabelSelector
	switch o := obj.(type) {
	case *appsv1.Deployment:
		m, spec, status, selector = &o.ObjectMeta, o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.ReplicaSet:
		m, spec, status, selector = &o.ObjectMeta, o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *appsv1.StatefulSet:
		m, spec, status, selector = &o.ObjectMeta, o.Spec.Replicas, o.Status.Replicas, o.Spec.Selector
	case *corev1.ReplicationController:
		m, spec, status, selector = &o.ObjectMeta, o.Spec.Replicas, o.Status.Replicas, &metav1.LabelSelector{
			MatchLabels: o.Spec.Selector,
		}
	default:
		return nil, fmt.Errorf("%T has no scale", obj)
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of %s: %w", m.Name, err)
	}
	out := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              m.Name,
			Namespace:         m.Namespace,
			UID:               m.UID,
			ResourceVersion:   m.ResourceVersion,
			CreationTimestamp: m.CreationTimestamp,
		},
		Status: autoscalingv1.ScaleStatus{Replicas: status, Selector: s.String()},
	}
	if spec != nil {
		out.Spec.Replicas = *spec
	}
	return out, nil
}
