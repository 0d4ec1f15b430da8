package networking

import (
	"context"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

func ingressClass() resource.Definition {
	return resource.Of[networkingv1.IngressClass, networkingv1.IngressClassList](resource.Kind{
		GroupVersion: networkingv1.SchemeGroupVersion, Kind: "IngressClass", Plural: "ingressclasses",
		Singular: "ingressclass", ClusterScoped: true,
	}, resource.Rules[networkingv1.IngressClass]{
		Default: func(c *networkingv1.IngressClass) {
			if p := c.Spec.Parameters; p != nil && p.Scope == nil {
				p.Scope = ptr.To(networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		},
		Spec:     func(c *networkingv1.IngressClass) any { return &c.Spec },
		Validate: func(_ context.Context, c *networkingv1.IngressClass) field.ErrorList { return ValidateClass(c) },
		ValidateUpdate: func(_ context.Context, c, old *networkingv1.IngressClass) field.ErrorList {
			return append(ValidateClass(c), alike.Unchanged(
				c.Spec.Controller, old.Spec.Controller, field.NewPath("spec", "controller"),
			)...)
		},
		Table: table.Of(func(c *networkingv1.IngressClass, now time.Time) []any {
			return []any{c.Name, c.Spec.Controller, parameters(c.Spec.Parameters), table.Since(c.CreationTimestamp, now)}
		},
			table.Name,
			table.Column{Name: "Controller", Description: "Who acts on Ingresses of the class."},
			table.Column{Name: "Parameters", Description: "What else that one should know."},
			table.Age,
		),
	})
}

func parameters(p *networkingv1.IngressClassParametersReference) string {
	switch {
	case p == nil:
		return "<none>"
	case p.APIGroup != nil:
		return p.Kind + "." + *p.APIGroup + "/" + p.Name
	}
	return p.Kind + "/" + p.Name
}

// maxController is how long the name of a controller may be.
const maxController = 250

// ValidateClass checks a class, metadata aside.
func ValidateClass(c *networkingv1.IngressClass) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	at := path.Child("controller")
	if len(c.Spec.Controller) > maxController {
		errs = append(errs, field.TooLong(at, c.Spec.Controller, maxController))
	}
	errs = append(errs, utilvalidation.IsDomainPrefixedPath(at, c.Spec.Controller)...)
	if p := c.Spec.Parameters; p != nil {
		errs = append(errs, validateParameters(p, path.Child("parameters"))...)
	}
	return errs
}

func validateParameters(p *networkingv1.IngressClassParametersReference, path *field.Path) field.ErrorList {
	errs := validateReference(p.APIGroup, p.Kind, p.Name, path)
	known := []string{
		networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace,
	}
	at := path.Child("namespace")
	switch {
	case p.Scope == nil:
		errs = append(errs, field.Required(path.Child("scope"), ""))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace && ptr.Deref(p.Namespace, "") == "":
		errs = append(errs, field.Required(at, "`parameters.scope` is set to 'Namespace'"))
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeNamespace:
		errs = append(errs, invalid(at, *p.Namespace, validation.ValidateNamespaceName(*p.Namespace, false))...)
	case *p.Scope == networkingv1.IngressClassParametersReferenceScopeCluster && p.Namespace != nil:
		errs = append(errs, field.Forbidden(at, "`parameters.scope` is set to 'Cluster'"))
	case *p.Scope != networkingv1.IngressClassParametersReferenceScopeCluster:
		errs = append(errs, field.NotSupported(path.Child("scope"), *p.Scope, known))
	}
	return errs
}
