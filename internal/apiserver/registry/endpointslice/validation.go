package endpointslice

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
	"github.com/everynode/everynode/internal/apiserver/registry/endpoints"
	"github.com/everynode/everynode/internal/apiserver/registry/endpointslice/equal"
)

const (
	maxEndpoints = 1000
	maxAddresses = 100
	maxPorts     = 20000
	maxTopology  = 16
	maxHints     = 8
)

// Validate checks a new slice, metadata aside.
func Validate(s *discoveryv1.EndpointSlice) field.ErrorList {
	return append(validateRest(s), validateEndpoints(s.Endpoints, s.AddressType, field.NewPath("endpoints"))...)
}

// ValidateUpdate checks a changed slice, metadata aside. Endpoints that were taken once stay.
func ValidateUpdate(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := alike.Unchanged(s.AddressType, old.AddressType, field.NewPath("addressType"))
	if equal.Endpoints(s.Endpoints, old.Endpoints) {
		return append(errs, validateRest(s)...)
	}
	return append(errs, Validate(s)...)
}

func validateRest(s *discoveryv1.EndpointSlice) field.ErrorList {
	return append(validateAddressType(s.AddressType), validatePorts(s.Ports, field.NewPath("ports"))...)
}

func validateAddressType(t discoveryv1.AddressType) field.ErrorList {
	path := field.NewPath("addressType")
	switch t {
	case discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		return nil
	case "":
		return field.ErrorList{field.Required(path, "")}
	}
	return field.ErrorList{field.NotSupported(path, t,
		[]discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6})}
}

func validateEndpoints(list []discoveryv1.Endpoint, t discoveryv1.AddressType, path *field.Path) field.ErrorList {
	if len(list) > maxEndpoints {
		return field.ErrorList{field.TooMany(path, len(list), maxEndpoints)}
	}
	var errs field.ErrorList
	for i := range enough.Each(list, &errs) {
		errs = append(errs, validateEndpoint(&list[i], t, path.Index(i))...)
	}
	return errs
}

func validateEndpoint(e *discoveryv1.Endpoint, t discoveryv1.AddressType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("addresses")
	switch {
	case len(e.Addresses) == 0:
		errs = append(errs, field.Required(at, "must contain at least 1 address"))
	case len(e.Addresses) > maxAddresses:
		errs = append(errs, field.TooMany(at, len(e.Addresses), maxAddresses))
	}
	for i, a := range enough.Each(e.Addresses, &errs) {
		errs = append(errs, validateAddress(a, t, at, i)...)
	}
	if e.NodeName != nil {
		for _, m := range utilvalidation.IsDNS1123Subdomain(*e.NodeName) {
			errs = append(errs, field.Invalid(path.Child("nodeName"), *e.NodeName, m))
		}
	}
	at = path.Child("deprecatedTopology")
	if len(e.DeprecatedTopology) > maxTopology {
		errs = append(errs, field.TooMany(at, len(e.DeprecatedTopology), maxTopology))
	}
	for _, key := range enough.Each(slices.Sorted(maps.Keys(e.DeprecatedTopology)), &errs) {
		for _, m := range utilvalidation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(at, key, m))
		}
	}
	if e.Hostname != nil {
		for _, m := range utilvalidation.IsDNS1123Label(*e.Hostname) {
			errs = append(errs, field.Invalid(path.Child("hostname"), *e.Hostname, m))
		}
	}
	return append(errs, validateHints(e.Hints, path.Child("hints"))...)
}

func validateAddress(address string, t discoveryv1.AddressType, list *field.Path, i int) field.ErrorList {
	path := list.Index(i)
	switch t {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		errs := utilvalidation.IsValidIPForLegacyField(path, address, true, nil)
		ip, err := netip.ParseAddr(address)
		switch {
		case len(errs) > 0 || err != nil:
			return errs
		case t == discoveryv1.AddressTypeIPv4 && !ip.Is4():
			errs = append(errs, field.Invalid(list, address, "must be an IPv4 address"))
		case t == discoveryv1.AddressTypeIPv6 && !ip.Is6():
			errs = append(errs, field.Invalid(list, address, "must be an IPv6 address"))
		}
		return append(errs, endpoints.NotSpecialIP(address, path)...)
	case discoveryv1.AddressTypeFQDN:
		return utilvalidation.IsFullyQualifiedDomainName(path, address)
	}
	return nil
}

// controllers are what slices say that the control plane itself keeps.
var controllers = []string{"endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"}

// outdated remarks on a kind of address that should not be chosen any more.
func outdated(s *discoveryv1.EndpointSlice) []string {
	if s.AddressType != discoveryv1.AddressTypeFQDN {
		return nil
	}
	return []string{"spec.addressType: FQDN endpoints are deprecated"} // there is no spec, but these are Kubernetes' words
}

// warnings name addresses that could be written better. Controllers write none.
func warnings(s *discoveryv1.EndpointSlice) []string {
	managed := s.Labels[discoveryv1.LabelManagedBy]
	if s.AddressType == discoveryv1.AddressTypeFQDN || slices.Contains(controllers, managed) {
		return nil
	}
	var w []string
	for i, e := range s.Endpoints {
		for j, a := range e.Addresses {
			w = append(w, utilvalidation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), a)...)
		}
	}
	return w
}

func validateHints(h *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	var errs field.ErrorList
	check := func(name string, list []string, valid func(string) []string) {
		at := path.Child(name)
		if len(list) > maxHints {
			errs = append(errs, field.TooMany(at, len(list), maxHints))
			return
		}
		seen := sets.New[string]()
		for i, hint := range enough.Each(list, &errs) {
			if seen.Has(hint) {
				errs = append(errs, field.Duplicate(at.Index(i).Child("name"), hint))
			}
			seen.Insert(hint)
			for _, m := range valid(hint) {
				errs = append(errs, field.Invalid(at.Index(i).Child("name"), hint, m))
			}
		}
	}
	zones, nodes := make([]string, len(h.ForZones)), make([]string, len(h.ForNodes))
	for i, z := range h.ForZones {
		zones[i] = z.Name
	}
	for i, n := range h.ForNodes {
		nodes[i] = n.Name
	}
	check("forZones", zones, utilvalidation.IsValidLabelValue)
	check("forNodes", nodes, utilvalidation.IsDNS1123Subdomain)
	return errs
}

func validatePorts(list []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(list) > maxPorts {
		return field.ErrorList{field.TooMany(path, len(list), maxPorts)}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range enough.Each(list, &errs) {
		at := path.Index(i)
		name := ptr.Deref(p.Name, "")
		if name != "" {
			for _, m := range utilvalidation.IsDNS1123Label(name) {
				errs = append(errs, field.Invalid(at.Child("name"), name, m))
			}
		}
		if names[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		names[name] = true
		if p.Port != nil {
			for _, m := range utilvalidation.IsValidPortNum(int(*p.Port)) {
				errs = append(errs, field.Invalid(at.Child("port"), *p.Port, m))
			}
		}
		errs = append(errs, validateProtocol(p.Protocol, at.Child("protocol"))...)
		if p.AppProtocol != nil {
			for _, m := range utilvalidation.IsQualifiedName(*p.AppProtocol) {
				errs = append(errs, field.Invalid(at.Child("appProtocol"), *p.AppProtocol, m))
			}
		}
	}
	return errs
}

func validateProtocol(p *corev1.Protocol, path *field.Path) field.ErrorList {
	if p == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return check.Supported(path, *p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}
