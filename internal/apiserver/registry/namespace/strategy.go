// Package namespace describes the kind Namespace of core/v1, and serves its
// deletion, which takes two steps: mark, and vanish when empty.
package namespace

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.Namespace, corev1.NamespaceList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "Namespace",
		Plural: "namespaces", Singular: "namespace", ShortNames: []string{"ns"}, ClusterScoped: true,
	}, resource.Rules[corev1.Namespace]{
		Default:      SetDefaults,
		ValidateName: validation.ValidateNamespaceName,
		Status:       func(n *corev1.Namespace) any { return &n.Status },
		PrepareForCreate: func(_ context.Context, n *corev1.Namespace) {
			n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
				n.Spec.Finalizers = append(slices.Clone(n.Spec.Finalizers), corev1.FinalizerKubernetes)
			}
		},
		// Finalizers change through the finalize subresource alone.
		PrepareForUpdate:       func(_ context.Context, n, old *corev1.Namespace) { n.Spec.Finalizers = old.Spec.Finalizers },
		PrepareStatusForUpdate: func(_ context.Context, n, old *corev1.Namespace) { n.Spec = old.Spec },
		Validate:               func(_ context.Context, n *corev1.Namespace) field.ErrorList { return Validate(n) },
		ValidateUpdate:         func(_ context.Context, n, _ *corev1.Namespace) field.ErrorList { return Validate(n) },
		ValidateStatusUpdate: func(_ context.Context, n, _ *corev1.Namespace) field.ErrorList {
			return ValidateStatusUpdate(n)
		},
		Canonicalize: label,
		// An object that is deleted and has nothing to wait for vanishes.
		DeleteDuringUpdate: func(n, _ *corev1.Namespace) bool {
			return n.DeletionTimestamp != nil && len(n.Spec.Finalizers) == 0 && len(n.Finalizers) == 0
		},
		ReturnDeletedObject: true,
		Fields: func(n *corev1.Namespace) fields.Set {
			return fields.Set{"status.phase": string(n.Status.Phase), "name": n.Name}
		},
		FieldLabels: []string{"status.phase", "name"},
		Table:       printer,
	})
}

// SetDefaults fills in what a namespace leaves out.
func SetDefaults(n *corev1.Namespace) {
	if n.Status.Phase == "" {
		n.Status.Phase = corev1.NamespaceActive
	}
	if n.Name != "" {
		label(n)
	}
}

// label makes every namespace selectable by its name.
func label(n *corev1.Namespace) {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

// Validate checks a namespace, metadata aside.
func Validate(n *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for _, f := range enough.Each(n.Spec.Finalizers, &errs) {
		errs = append(errs, validation.ValidateFinalizerName(string(f), field.NewPath("spec", "finalizers"))...)
	}
	return errs
}

// ValidateStatusUpdate checks that the phase says whether the namespace is being deleted.
func ValidateStatusUpdate(n *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "Phase")
	switch {
	case n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, n.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !n.DeletionTimestamp.IsZero() && n.Status.Phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(
			path, n.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty",
		)}
	}
	return nil
}

var printer = table.Of(func(n *corev1.Namespace, now time.Time) []any {
	return []any{n.Name, string(n.Status.Phase), table.Since(n.CreationTimestamp, now)}
}, table.Name, table.Column{Name: "Status", Description: "Whether the namespace is in use or being deleted."},
	table.Age)
