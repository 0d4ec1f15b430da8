package networking

import (
	"context"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// ipAddress is the kind that shows whose an address is. Those of Services are written with them, in package service.
func ipAddress() resource.Definition {
	return resource.Of[networkingv1.IPAddress, networkingv1.IPAddressList](resource.Kind{
		GroupVersion: networkingv1.SchemeGroupVersion, Kind: "IPAddress", Plural: "ipaddresses", Singular: "ipaddress",
		ShortNames: []string{"ip"}, ClusterScoped: true,
	}, resource.Rules[networkingv1.IPAddress]{
		ValidateName: addressName,
		Validate:     func(_ context.Context, a *networkingv1.IPAddress) field.ErrorList { return ValidateAddress(a) },
		ValidateUpdate: func(_ context.Context, a, old *networkingv1.IPAddress) field.ErrorList {
			return append(ValidateAddress(a), alike.Unchanged(
				a.Spec.ParentRef, old.Spec.ParentRef, field.NewPath("spec", "parentRef"),
			)...)
		},
		Table: table.Of(func(a *networkingv1.IPAddress, _ time.Time) []any { return []any{a.Name, parent(a.Spec.ParentRef)} },
			table.Name, table.Column{Name: "ParentRef", Description: "The object that has the address."}),
	})
}

// addressName says what is wrong with a name that is to be an address. Names cannot be made up for these.
func addressName(name string, _ bool) (out []string) {
	for _, err := range utilvalidation.IsValidIP(nil, name) {
		out = append(out, err.Detail)
	}
	return out
}

// ValidateAddress checks an IPAddress, metadata aside.
func ValidateAddress(a *networkingv1.IPAddress) field.ErrorList {
	at, ref := field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if ref == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if ref.Group != "" {
		errs = invalid(at.Child("group"), ref.Group, utilvalidation.IsDNS1123Subdomain(ref.Group))
	}
	for _, segment := range []struct {
		field, value string
		required     bool
	}{{"resource", ref.Resource, true}, {"name", ref.Name, true}, {"namespace", ref.Namespace, false}} {
		switch {
		case segment.value != "":
			errs = append(errs, invalid(at.Child(segment.field), segment.value, content.IsPathSegmentName(segment.value))...)
		case segment.required:
			errs = append(errs, field.Required(at.Child(segment.field), ""))
		}
	}
	return errs
}

// parent is an object's resource and group, namespace and name.
func parent(ref *networkingv1.ParentReference) string {
	if ref == nil {
		return "<none>"
	}
	out := ref.Resource
	if ref.Group != "" {
		out += "." + ref.Group
	}
	if ref.Namespace != "" {
		out += "/" + ref.Namespace
	}
	return out + "/" + ref.Name
}
