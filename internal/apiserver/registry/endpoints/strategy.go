// Package endpoints describes the kind Endpoints of core/v1, the older way of
// saying where a Service leads.
package endpoints

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/registry/endpointslice/equal"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.Endpoints, corev1.EndpointsList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "Endpoints",
		Plural: "endpoints", Singular: "endpoints", ShortNames: []string{"ep"},
	}, resource.Rules[corev1.Endpoints]{
		Default:          SetDefaults,
		Validate:         func(_ context.Context, e *corev1.Endpoints) field.ErrorList { return Validate(e) },
		ValidateUpdate:   func(_ context.Context, e, old *corev1.Endpoints) field.ErrorList { return ValidateUpdate(e, old) },
		WarningsOnCreate: func(_ context.Context, e *corev1.Endpoints) []string { return warnings(e) },
		WarningsOnUpdate: func(_ context.Context, e, old *corev1.Endpoints) []string {
			if equal.Subsets(e.Subsets, old.Subsets) {
				return nil
			}
			return warnings(e)
		},
		AllowCreateOnUpdate: true,
		Table:               printer,
	})
}

// SetDefaults fills in the protocol of ports.
func SetDefaults(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			if p := &e.Subsets[i].Ports[j]; p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
		}
	}
}

// Validate checks new endpoints, metadata aside.
func Validate(e *corev1.Endpoints) field.ErrorList { return validate(e, true) }

// ValidateUpdate checks changed endpoints, metadata aside. Addresses that were written in
// an old way stay as long as no endpoint is changed.
func ValidateUpdate(e, old *corev1.Endpoints) field.ErrorList {
	return validate(e, !equal.Subsets(e.Subsets, old.Subsets))
}

// warnings name addresses that could be written better.
func warnings(e *corev1.Endpoints) []string {
	var w []string
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		for j, a := range s.Addresses {
			w = append(w, utilvalidation.GetWarningsForIP(at.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, a := range s.NotReadyAddresses {
			w = append(w, utilvalidation.GetWarningsForIP(at.Child("notReadyAddresses").Index(j).Child("ip"), a.IP)...)
		}
	}
	return w
}

func validate(e *corev1.Endpoints, strict bool) field.ErrorList {
	var errs field.ErrorList
	for i, s := range enough.Each(e.Subsets, &errs) {
		at := field.NewPath("subsets").Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, a := range enough.Each(s.Addresses, &errs) {
			errs = append(errs, validateAddress(&a, strict, at.Child("addresses").Index(j))...)
		}
		for j, a := range enough.Each(s.NotReadyAddresses, &errs) {
			errs = append(errs, validateAddress(&a, strict, at.Child("notReadyAddresses").Index(j))...)
		}
		for j, p := range enough.Each(s.Ports, &errs) {
			errs = append(errs, validatePort(&p, len(s.Ports) > 1, at.Child("ports").Index(j))...)
		}
	}
	return errs
}

func validateAddress(a *corev1.EndpointAddress, strict bool, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsValidIPForLegacyField(path.Child("ip"), a.IP, strict, nil)
	if a.Hostname != "" {
		for _, m := range utilvalidation.IsDNS1123Label(a.Hostname) {
			errs = append(errs, field.Invalid(path.Child("hostname"), a.Hostname, m))
		}
	}
	if a.NodeName != nil {
		for _, m := range utilvalidation.IsDNS1123Subdomain(*a.NodeName) {
			errs = append(errs, field.Invalid(path.Child("nodeName"), *a.NodeName, m))
		}
	}
	return append(errs, NotSpecialIP(a.IP, path.Child("ip"))...)
}

// NotSpecialIP refuses addresses that only mean something to one machine, which
// a Service must never lead to.
func NotSpecialIP(text string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(text)
	why := ""
	switch {
	case ip == nil:
		why = "must be a valid IP address"
	case ip.IsUnspecified():
		why = fmt.Sprintf("may not be unspecified (%v)", text)
	case ip.IsLoopback():
		why = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case ip.IsLinkLocalUnicast():
		why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case ip.IsLinkLocalMulticast():
		why = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(path, text, why)}
}

func validatePort(p *corev1.EndpointPort, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if named && p.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else if p.Name != "" {
		for _, m := range utilvalidation.IsDNS1123Label(p.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), p.Name, m))
		}
	}
	for _, m := range utilvalidation.IsValidPortNum(int(p.Port)) {
		errs = append(errs, field.Invalid(path.Child("port"), p.Port, m))
	}
	errs = append(errs, podspec.Protocol(path.Child("protocol"), p.Protocol)...)
	if p.AppProtocol != nil {
		for _, m := range utilvalidation.IsQualifiedName(*p.AppProtocol) {
			errs = append(errs, field.Invalid(path.Child("appProtocol"), *p.AppProtocol, m))
		}
	}
	return errs
}

var printer = table.Of(func(e *corev1.Endpoints, now time.Time) []any {
	return []any{e.Name, summary(e), table.Since(e.CreationTimestamp, now)}
}, table.Name, table.Column{Name: "Endpoints", Description: "Addresses and ports."}, table.Age)

// summary lists the first few ready endpoints.
func summary(e *corev1.Endpoints) string {
	const shown = 3
	var list []string
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				list = append(list, a.IP)
			}
			for _, p := range s.Ports {
				list = append(list, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	if len(list) == 0 {
		return "<none>"
	}
	if more := len(list) - shown; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:shown], ","), more)
	}
	return strings.Join(list, ",")
}
