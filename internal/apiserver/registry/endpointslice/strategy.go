// Package endpointslice describes the kind EndpointSlice of
// discovery.k8s.io/v1: a part of where a Service leads.
package endpointslice

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/registry/endpointslice/equal"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](resource.Kind{
		GroupVersion: discoveryv1.SchemeGroupVersion, Kind: "EndpointSlice",
		Plural: "endpointslices", Singular: "endpointslice",
	}, resource.Rules[discoveryv1.EndpointSlice]{
		Default: SetDefaults,
		PrepareForCreate: func(_ context.Context, s *discoveryv1.EndpointSlice) {
			s.Generation = 1
			dropTopology(s, &discoveryv1.EndpointSlice{})
		},
		PrepareForUpdate: func(_ context.Context, s, old *discoveryv1.EndpointSlice) {
			dropTopology(s, old)
			raiseGeneration(s, old)
		},
		Validate: func(_ context.Context, s *discoveryv1.EndpointSlice) field.ErrorList { return Validate(s) },
		ValidateUpdate: func(_ context.Context, s, old *discoveryv1.EndpointSlice) field.ErrorList {
			return ValidateUpdate(s, old)
		},
		WarningsOnCreate: func(_ context.Context, s *discoveryv1.EndpointSlice) []string {
			return append(outdated(s), warnings(s)...)
		},
		WarningsOnUpdate: func(_ context.Context, s, _ *discoveryv1.EndpointSlice) []string { return warnings(s) },
		Table:            printer,
	})
}

// dropTopology ignores what this version of the API cannot write, as its documentation says. Where a node was named
// there, it is named in the field for that.
func dropTopology(s, old *discoveryv1.EndpointSlice) {
	if equal.Endpoints(s.Endpoints, old.Endpoints) {
		return
	}
	nodes := sets.New[string]()
	for _, e := range old.Endpoints {
		nodes.Insert(e.DeprecatedTopology[corev1.LabelHostname])
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		name := e.DeprecatedTopology[corev1.LabelHostname]
		if e.NodeName == nil && name != "" && nodes.Has(name) && len(utilvalidation.IsDNS1123Subdomain(name)) == 0 {
			e.NodeName = &name
		}
		e.DeprecatedTopology = nil
	}
}

// raiseGeneration counts changes of all but the metadata, and of the labels.
func raiseGeneration(s, old *discoveryv1.EndpointSlice) {
	s.Generation = old.Generation
	same := s.AddressType == old.AddressType && maps.Equal(s.Labels, old.Labels) &&
		equal.Endpoints(s.Endpoints, old.Endpoints) && alike.Values(s.Ports, old.Ports)
	if !same {
		s.Generation++
	}
}

// SetDefaults fills in the name and protocol of ports.
func SetDefaults(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name == nil {
			p.Name = ptr.To("")
		}
		if p.Protocol == nil {
			p.Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

var printer = table.Of(func(s *discoveryv1.EndpointSlice, now time.Time) []any {
	return []any{s.Name, string(s.AddressType), ports(s.Ports), addresses(s.Endpoints),
		table.Since(s.CreationTimestamp, now)}
},
	table.Name,
	table.Column{Name: "AddressType", Description: "Kind of the addresses."},
	table.Column{Name: "Ports", Description: "Ports that every endpoint has."},
	table.Column{Name: "Endpoints", Description: "Addresses of the endpoints."},
	table.Age,
)

func ports(list []discoveryv1.EndpointPort) string {
	var out []string
	for _, p := range list {
		switch {
		case p.Port != nil:
			out = append(out, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			out = append(out, *p.Name)
		default:
			out = append(out, "*")
		}
	}
	return firstFew(out)
}

func addresses(list []discoveryv1.Endpoint) string {
	var out []string
	for _, e := range list {
		if len(e.Addresses) > 0 {
			out = append(out, e.Addresses[0])
		}
	}
	return firstFew(out)
}

func firstFew(list []string) string {
	const shown = 3
	if len(list) == 0 {
		return "<unset>"
	}
	if more := len(list) - shown; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:shown], ","), more)
	}
	return strings.Join(list, ",")
}
