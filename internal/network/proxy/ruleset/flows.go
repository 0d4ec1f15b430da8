package ruleset

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/network/proxy/changes"
)

// Flow is a UDP address and port of a Service. The kernel goes on sending a client's
// packets where the first one went, for as long as they keep coming; so what it noted
// about others than Endpoints must be forgotten when those change.
type Flow struct {
	// To is the address; none is a node port, on every address of the node.
	To   netip.Addr
	Port uint16
	// Endpoints are where flows may lead.
	Endpoints []netip.AddrPort
}

type flowKey struct {
	to   netip.Addr
	port uint16
}

// flowsOf are the UDP frontends of a Service with their endpoints.
func flowsOf(svc changes.Service) map[flowKey][]netip.AddrPort {
	out := map[flowKey][]netip.AddrPort{}
	for _, p := range svc.Ports {
		if p.Protocol != corev1.ProtocolUDP {
			continue
		}
		endpoints := p.Serving
		for _, ip := range slices.Concat([]netip.Addr{p.ClusterIP}, p.ExternalIPs, p.Balancers) {
			out[flowKey{ip, p.Port}] = endpoints
		}
		if p.NodePort != 0 {
			out[flowKey{netip.Addr{}, p.NodePort}] = endpoints
		}
	}
	return out
}

// outdated are the flows to look through when frontends become others: new ones, which
// may have led nowhere, those that lost an endpoint, and those that are gone.
func outdated(old, now map[flowKey][]netip.AddrPort) (out []Flow) {
	for k, endpoints := range now {
		before, known := old[k]
		lost := slices.ContainsFunc(before, func(e netip.AddrPort) bool { return !slices.Contains(endpoints, e) })
		if !known || lost || len(before) == 0 && len(endpoints) > 0 {
			out = append(out, Flow{To: k.to, Port: k.port, Endpoints: endpoints})
		}
	}
	for k := range old {
		if _, still := now[k]; !still {
			out = append(out, Flow{To: k.to, Port: k.port})
		}
	}
	return out
}

func compareFlows(a, b Flow) int {
	if c := a.To.Compare(b.To); c != 0 {
		return c
	}
	return int(a.Port) - int(b.Port)
}
