// Package networking describes the kinds of networking.k8s.io/v1: Ingress, IngressClass and NetworkPolicy, on which
// daemons act, and ServiceCIDR and IPAddress, which say where addresses of Services come from and whose they are.
package networking

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// classAnnotation is how an Ingress named its class before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

// Definitions returns the kinds.
func Definitions() []resource.Definition {
	return []resource.Definition{ingress(), ingressClass(), networkPolicy(), serviceCIDR(), ipAddress()}
}

func ingress() resource.Definition {
	return resource.Of[networkingv1.Ingress, networkingv1.IngressList](resource.Kind{
		GroupVersion: networkingv1.SchemeGroupVersion, Kind: "Ingress", Plural: "ingresses", Singular: "ingress",
		ShortNames: []string{"ing"},
	}, resource.Rules[networkingv1.Ingress]{
		Spec:     func(i *networkingv1.Ingress) any { return &i.Spec },
		Status:   func(i *networkingv1.Ingress) any { return &i.Status },
		Validate: func(_ context.Context, i *networkingv1.Ingress) field.ErrorList { return ValidateIngress(i) },
		ValidateUpdate: func(_ context.Context, i, _ *networkingv1.Ingress) field.ErrorList {
			return validateIngressSpec(&i.Spec, field.NewPath("spec"))
		},
		ValidateStatusUpdate: func(_ context.Context, i, _ *networkingv1.Ingress) field.ErrorList {
			return validateAddresses(i)
		},
		WarningsOnCreate: func(_ context.Context, i *networkingv1.Ingress) []string {
			if _, old := i.Annotations[classAnnotation]; old && i.Spec.IngressClassName == nil {
				return []string{fmt.Sprintf(
					"annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation,
				)}
			}
			return nil
		},
		Table: ingressTable,
	})
}

var ingressTable = table.Of(func(i *networkingv1.Ingress, now time.Time) []any {
	ports := "80"
	if len(i.Spec.TLS) > 0 {
		ports = "80, 443"
	}
	return []any{
		i.Name,
		table.OrNone(ptr.Deref(i.Spec.IngressClassName, "")),
		hosts(i.Spec.Rules),
		addresses(i),
		ports,
		table.Since(i.CreationTimestamp, now),
	}
},
	table.Name,
	table.Column{Name: "Class", Description: "Class of the Ingress, which says who acts on it."},
	table.Column{Name: "Hosts", Description: "Names that the rules are for."},
	table.Column{Name: "Address", Description: "Where its traffic comes in."},
	table.Column{Name: "Ports", Description: "Ports at which it comes in."},
	table.Age,
)

// hosts shows three names at most.
func hosts(rules []networkingv1.IngressRule) string {
	const most = 3
	var names []string
	more := false
	for _, r := range rules {
		if len(names) == most {
			more = true
		}
		if !more && r.Host != "" {
			names = append(names, r.Host)
		}
	}
	switch {
	case len(names) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", strings.Join(names, ","), len(rules)-most)
	}
	return strings.Join(names, ",")
}

// addresses lists where traffic comes in, each place once.
func addresses(i *networkingv1.Ingress) string {
	all := sets.New[string]()
	for _, a := range i.Status.LoadBalancer.Ingress {
		if a.IP != "" {
			all.Insert(a.IP)
		} else if a.Hostname != "" {
			all.Insert(a.Hostname)
		}
	}
	return strings.Join(slices.Sorted(slices.Values(all.UnsortedList())), ",")
}
