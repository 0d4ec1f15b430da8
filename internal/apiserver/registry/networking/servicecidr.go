package networking

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
	"github.com/everynode/everynode/internal/network/servicenetwork"
)

// serviceCIDR is the kind that says where addresses of Services come from.
func serviceCIDR() resource.Definition {
	return resource.Of[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList](resource.Kind{
		GroupVersion: networkingv1.SchemeGroupVersion, Kind: "ServiceCIDR", Plural: "servicecidrs", Singular: "servicecidr",
		ClusterScoped: true,
	}, resource.Rules[networkingv1.ServiceCIDR]{
		Status: func(c *networkingv1.ServiceCIDR) any { return &c.Status },
		// From the first moment it stays as long as Services have addresses of it.
		PrepareForCreate: func(_ context.Context, c *networkingv1.ServiceCIDR) {
			if !slices.Contains(c.Finalizers, servicenetwork.Finalizer) {
				c.Finalizers = append(c.Finalizers, servicenetwork.Finalizer)
			}
		},
		Validate: func(_ context.Context, c *networkingv1.ServiceCIDR) field.ErrorList { return ValidateServiceCIDR(c) },
		ValidateUpdate: func(_ context.Context, c, old *networkingv1.ServiceCIDR) field.ErrorList {
			return alike.Unchanged(c.Spec.CIDRs, old.Spec.CIDRs, field.NewPath("spec", "cidrs"))
		},
		PrepareStatusForUpdate: func(_ context.Context, c, old *networkingv1.ServiceCIDR) {
			c.Spec, c.Finalizers, c.Labels, c.Annotations = old.Spec, old.Finalizers, old.Labels, old.Annotations
		},
		Table: table.Of(func(c *networkingv1.ServiceCIDR, now time.Time) []any {
			return []any{c.Name, strings.Join(c.Spec.CIDRs, ","), table.Since(c.CreationTimestamp, now)}
		}, table.Name, table.Column{Name: "CIDRs", Description: "The networks that addresses of Services come from."},
			table.Age),
	})
}

// ValidateServiceCIDR checks a ServiceCIDR, metadata aside.
func ValidateServiceCIDR(c *networkingv1.ServiceCIDR) field.ErrorList {
	at, cidrs := field.NewPath("spec", "cidrs"), c.Spec.CIDRs
	const families = 2
	switch {
	case len(cidrs) == 0:
		return field.ErrorList{field.Required(at, "at least one CIDR required")}
	case len(cidrs) > families:
		return field.ErrorList{field.Invalid(at, c.Spec, "may only hold up to 2 values")}
	case len(cidrs) == families && !oneOfEach(cidrs[0], cidrs[1]):
		return field.ErrorList{field.Invalid(
			at, c.Spec, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
		)}
	}
	var errs field.ErrorList
	for i, text := range enough.Each(cidrs, &errs) {
		errs = append(errs, utilvalidation.IsValidCIDR(at.Index(i), text)...)
	}
	return errs
}

func oneOfEach(a, b string) bool {
	first, err := netip.ParsePrefix(a)
	if err != nil {
		return false
	}
	second, err := netip.ParsePrefix(b)
	return err == nil && first.Addr().Is4() != second.Addr().Is4()
}
