// Package lease describes the kind Lease of coordination.k8s.io/v1: a node's
// heartbeat, or a claim to lead.
package lease

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[coordinationv1.Lease, coordinationv1.LeaseList](resource.Kind{
		GroupVersion: coordinationv1.SchemeGroupVersion, Kind: "Lease",
		Plural: "leases", Singular: "lease",
	}, resource.Rules[coordinationv1.Lease]{
		Validate:               func(_ context.Context, l *coordinationv1.Lease) field.ErrorList { return Validate(l) },
		AllowCreateOnUpdate:    true,
		RequireResourceVersion: true,
		Table: table.Of(func(l *coordinationv1.Lease, now time.Time) []any {
			return []any{l.Name, ptr.Deref(l.Spec.HolderIdentity, ""), table.Since(l.CreationTimestamp, now)}
		}, table.Name, table.Column{Name: "Holder", Description: "Who has the lease."}, table.Age),
	})
}

// Validate checks a lease, metadata aside.
func Validate(l *coordinationv1.Lease) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if v := l.Spec.LeaseDurationSeconds; v != nil && *v <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *v, "must be greater than 0"))
	}
	if v := l.Spec.LeaseTransitions; v != nil {
		errs = append(errs, amount.NonNegative(path.Child("leaseTransitions"), int64(*v))...)
	}
	if l.Spec.PreferredHolder != nil && *l.Spec.PreferredHolder != "" &&
		(l.Spec.Strategy == nil || *l.Spec.Strategy == "") {
		errs = append(errs, field.Forbidden(
			path.Child("preferredHolder"), "may only be specified when `strategy` is defined",
		))
	}
	return errs
}
