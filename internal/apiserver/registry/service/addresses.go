package service

import (
	"context"
	"errors"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/registry/service/plan"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// HoldsAddress says who an IPAddress is, and which name it holds, if it is not that of a Service: those are written
// together with their Service, which holds the name.
func HoldsAddress(obj runtime.Object) (holder string, names []string) {
	a := obj.(*networkingv1.IPAddress)
	return plan.AddressHolder(a), plan.AddressNames(a)
}

// HoldsNothing is for kinds that are read in the database itself, and hold no names.
func HoldsNothing(runtime.Object) (holder string, names []string) { return "", nil }

// AddressREST serves IPAddresses. Those of Services come and go with them.
type AddressREST struct {
	*resource.REST
	holders holders
}

// Create implements rest.Creater.
func (r *AddressREST) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	created, err := r.REST.Create(ctx, obj, validate, options)
	if isTaken(err) {
		return nil, apierrors.NewAlreadyExists(r.DefaultQualifiedResource, obj.(*networkingv1.IPAddress).Name)
	}
	return created, err
}

// Update implements rest.Updater.
func (r *AddressREST) Update(
	ctx context.Context,
	name string,
	info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc,
	force bool,
	options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	obj, created, err := r.REST.Update(ctx, name, info, create, update, force, options)
	if isTaken(err) {
		return nil, false, apierrors.NewAlreadyExists(r.DefaultQualifiedResource, name)
	}
	return obj, created, err
}

// Delete implements rest.GracefulDeleter.
func (r *AddressREST) Delete(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	return r.REST.Delete(ctx, name, r.unlessOfService(validate), options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *AddressREST) DeleteCollection(
	ctx context.Context,
	validate rest.ValidateObjectFunc,
	options *metav1.DeleteOptions,
	list *metainternalversion.ListOptions,
) (runtime.Object, error) {
	return r.REST.DeleteCollection(ctx, r.unlessOfService(validate), options, list)
}

// unlessOfService refuses what would say that an address is free which a Service has.
func (r *AddressREST) unlessOfService(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		a := obj.(*networkingv1.IPAddress)
		held, err := r.holders.Holders(ctx, plan.AddressNames(a)...)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		for _, holder := range held {
			if namespace, name, ok := plan.ServiceOf(holder); ok {
				return apierrors.NewForbidden(
					r.DefaultQualifiedResource, a.Name,
					fmt.Errorf("it is the address of Service %s/%s, and goes with it", namespace, name),
				)
			}
		}
		return validate(ctx, obj)
	}
}

func isTaken(err error) bool {
	var taken interface{ Taken() (name, holder string) }
	return errors.As(err, &taken)
}
