// Package equal compares endpoints as apiequality.Semantic does, without reflection: lists of them are long.
package equal

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// Subsets reports whether the subsets of two Endpoints are the same. Nil and empty are.
func Subsets(a, b []corev1.EndpointSubset) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.EndpointSubset) bool {
		return slices.EqualFunc(a.Addresses, b.Addresses, address) &&
			slices.EqualFunc(a.NotReadyAddresses, b.NotReadyAddresses, address) &&
			slices.EqualFunc(a.Ports, b.Ports, port)
	})
}

func address(a, b corev1.EndpointAddress) bool {
	return a.IP == b.IP && a.Hostname == b.Hostname && ptr.Equal(a.NodeName, b.NodeName) &&
		ptr.Equal(a.TargetRef, b.TargetRef)
}

func port(a, b corev1.EndpointPort) bool {
	return a.Name == b.Name && a.Port == b.Port && a.Protocol == b.Protocol && ptr.Equal(a.AppProtocol, b.AppProtocol)
}

// Endpoints reports whether the endpoints of two EndpointSlices are the same. Nil and empty are.
func Endpoints(a, b []discoveryv1.Endpoint) bool { return slices.EqualFunc(a, b, endpoint) }

func endpoint(a, b discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) && conditions(&a.Conditions, &b.Conditions) &&
		ptr.Equal(a.Hostname, b.Hostname) && ptr.Equal(a.TargetRef, b.TargetRef) &&
		maps.Equal(a.DeprecatedTopology, b.DeprecatedTopology) && ptr.Equal(a.NodeName, b.NodeName) &&
		ptr.Equal(a.Zone, b.Zone) && hints(a.Hints, b.Hints)
}

func conditions(a, b *discoveryv1.EndpointConditions) bool {
	return ptr.Equal(a.Ready, b.Ready) && ptr.Equal(a.Serving, b.Serving) && ptr.Equal(a.Terminating, b.Terminating)
}

func hints(a, b *discoveryv1.EndpointHints) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.ForZones, b.ForZones) && slices.Equal(a.ForNodes, b.ForNodes)
}
