package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// BindingREST assigns a pod to a node: the scheduler's one write.
type BindingREST struct {
	store   *genericregistry.Store
	targets *Targets
}

// NewBindingREST returns the pods/binding subresource over the pods' store.
func NewBindingREST(store *genericregistry.Store, targets *Targets) *BindingREST {
	return &BindingREST{store, targets}
}

var (
	_ rest.NamedCreater                   = (*BindingREST)(nil)
	_ rest.SubresourceObjectMetaPreserver = (*BindingREST)(nil)
)

// New implements rest.Storage.
func (r *BindingREST) New() runtime.Object { return &corev1.Binding{} }

// Destroy implements rest.Storage.
func (r *BindingREST) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements
// rest.SubresourceObjectMetaPreserver: the UID says which pod of the name is meant.
func (r *BindingREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements rest.NamedCreater: it sets the pod's node once, and marks it scheduled.
func (r *BindingREST) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", obj))
	}
	if name != binding.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, errs)
	}
	if validate != nil {
		if err := validate(ctx, binding.DeepCopy()); err != nil {
			return nil, err
		}
	}
	if err := r.assign(ctx, binding, dryrun.IsDryRun(options.DryRun)); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil, err
		}
		return nil, apierrors.NewConflict(corev1.Resource("pods/binding"), name, err)
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func validateBinding(b *corev1.Binding) (errs field.ErrorList) {
	target := field.NewPath("target")
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(target.Child("name"), ""))
	}
	return errs
}

func (r *BindingREST) assign(ctx context.Context, b *corev1.Binding, dryRun bool) error {
	key, err := r.store.KeyFunc(ctx, b.Name)
	if err != nil {
		return err
	}
	var precondition *storage.Preconditions
	if b.UID != "" {
		precondition = storage.NewUIDPreconditions(string(b.UID))
	}
	now := metav1.Now()
	update := func(existing runtime.Object) (runtime.Object, error) {
		pod := existing.(*corev1.Pod)
		if pod.DeletionTimestamp != nil {
			return nil, fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
		}
		if pod.Spec.NodeName != "" {
			return nil, fmt.Errorf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
		}
		if len(pod.Spec.SchedulingGates) > 0 {
			return nil, fmt.Errorf("pod %v has non-empty .spec.schedulingGates", pod.Name)
		}
		return bound(pod, b, now), nil
	}
	err = r.targets.while(ctx, &b.Target, dryRun, func(ctx context.Context, isThere func() error) error {
		return r.store.Storage.GuaranteedUpdate(ctx, key, &corev1.Pod{}, false, precondition, storage.SimpleUpdate(
			func(existing runtime.Object) (runtime.Object, error) {
				out, err := update(existing)
				if err == nil {
					err = isThere()
				}
				return out, err
			}), dryRun, nil)
	})
	if storage.IsNotFound(err) {
		return apierrors.NewNotFound(corev1.Resource("pods"), b.Name)
	}
	return err
}

// bound is the pod with what a binding gives it. Maps and slices of the pod may be shared: what changes is copied.
func bound(unbound *corev1.Pod, b *corev1.Binding, now metav1.Time) *corev1.Pod {
	pod := *unbound
	pod.Spec.NodeName = b.Target.Name
	pod.Annotations = merged(pod.Annotations, b.Annotations)
	pod.Labels = merged(pod.Labels, b.Labels)
	pod.Status.Conditions = scheduled(&pod, now)
	pod.Status.NominatedNodeName = ""
	return &pod
}

func merged(base, extra map[string]string) map[string]string {
	if len(extra) == 0 {
		return base
	}
	out := make(map[string]string, len(base)+len(extra))
	for k, v := range base {
		out[k] = v
	}
	for k, v := range extra {
		out[k] = v
	}
	return out
}

// scheduled returns the pod's conditions with PodScheduled true.
func scheduled(pod *corev1.Pod, now metav1.Time) []corev1.PodCondition {
	out := make([]corev1.PodCondition, 0, len(pod.Status.Conditions)+1)
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodScheduled {
			out = append(out, c)
		}
	}
	return append(out, corev1.PodCondition{
		Type:               corev1.PodScheduled,
		Status:             corev1.ConditionTrue,
		ObservedGeneration: pod.Generation,
		LastTransitionTime: now,
	})
}
