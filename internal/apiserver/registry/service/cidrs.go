package service

import (
	"context"
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// CIDRREST serves ServiceCIDRs. It refuses networks of which no Service would be given an address.
type CIDRREST struct {
	*resource.REST
	configured netip.Prefix
}

// Create implements rest.Creater.
func (r *CIDRREST) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	return r.REST.Create(ctx, obj, r.ofOurFamily(validate), options)
}

// Update implements rest.Updater.
func (r *CIDRREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.REST.Update(ctx, name, info, r.ofOurFamily(create), update, force, options)
}

func (r *CIDRREST) ofOurFamily(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		c := obj.(*networkingv1.ServiceCIDR)
		var errs field.ErrorList
		for i, text := range enough.Each(c.Spec.CIDRs, &errs) {
			if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() != r.configured.Addr().Is4() {
				errs = append(errs, field.Invalid(field.NewPath("spec", "cidrs").Index(i), text,
					fmt.Sprintf("the Services of this cluster have addresses of one family, that of %s", r.configured)))
			}
		}
		if len(errs) > 0 {
			return apierrors.NewInvalid(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR").GroupKind(), c.Name, errs)
		}
		return validate(ctx, obj)
	}
}
