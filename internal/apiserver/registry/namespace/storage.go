package namespace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// REST serves namespaces. Deleting one only marks it: it vanishes when its
// contents are gone and its finalizers are empty.
type REST struct{ *resource.REST }

// Extend replaces the plain namespace storage by one that deletes in two steps
// and adds the finalize subresource.
func Extend(s *resource.Storage) {
	finalize := *s.Store
	finalize.UpdateStrategy = finalizeStrategy{s.Store.UpdateStrategy}
	finalize.ResetFieldsStrategy = nil
	s.Subresources["finalize"] = &resource.SubresourceREST{Store: &finalize}
	s.Main = &REST{s.Main.(*resource.REST)}
}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	obj, err := r.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, false, err
	}
	ns := obj.(*corev1.Namespace)
	if options == nil {
		options = metav1.NewDeleteOptions(0)
	}
	if err := checkPreconditions(ns, options); err != nil {
		return nil, false, err
	}
	if ns.DeletionTimestamp.IsZero() {
		marked, err := r.mark(ctx, ns, validate, options)
		return marked, false, err
	}
	if len(ns.Spec.Finalizers) > 0 {
		return ns, false, nil
	}
	return r.Store.Delete(ctx, name, validate, options)
}

func checkPreconditions(ns *corev1.Namespace, options *metav1.DeleteOptions) error {
	p := options.Preconditions
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != ns.UID:
		//nolint:staticcheck // Kubernetes' own words.
		return apierrors.NewConflict(corev1.Resource("namespaces"), ns.Name, fmt.Errorf(
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, ns.UID))
	case p.ResourceVersion != nil && *p.ResourceVersion != ns.ResourceVersion:
		//nolint:staticcheck // Kubernetes' own words.
		return apierrors.NewConflict(corev1.Resource("namespaces"), ns.Name, fmt.Errorf(
			"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v",
			*p.ResourceVersion, ns.ResourceVersion))
	}
	return nil
}

// mark sets the deletion time and the phase Terminating.
func (r *REST) mark(
	ctx context.Context, ns *corev1.Namespace, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, error) {
	key, err := r.KeyFunc(ctx, ns.Name)
	if err != nil {
		return nil, err
	}
	now := metav1.Now()
	out := &corev1.Namespace{}
	err = r.Storage.GuaranteedUpdate(
		ctx, key, out, false, storage.NewUIDPreconditions(string(ns.UID)),
		storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
			next := existing.(*corev1.Namespace).DeepCopy()
			if validate != nil {
				if err := validate(ctx, next); err != nil {
					return nil, err
				}
			}
			if next.DeletionTimestamp.IsZero() {
				next.DeletionTimestamp = &now
			}
			next.Status.Phase = corev1.NamespaceTerminating
			return next, nil
		}),
		dryrun.IsDryRun(options.DryRun), nil,
	)
	if err != nil {
		if apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			return nil, err
		}
		return nil, apierrors.NewConflict(corev1.Resource("namespaces"), ns.Name, err)
	}
	return out, nil
}

// DeleteCollection hides the store's method of that name, so that the verb is
// not offered: deleting all namespaces at once is never what anybody means.
func (r *REST) DeleteCollection() {}

// finalizeStrategy lets only spec.finalizers change.
type finalizeStrategy struct{ rest.RESTUpdateStrategy }

func (s finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	now, before := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	finalizers := now.Spec.Finalizers
	before.DeepCopyInto(now)
	now.Spec.Finalizers = finalizers
}
