package changes

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// endpoint is what matters here of an endpoint in a slice.
type endpoint struct {
	ip                          netip.Addr
	ready, serving, terminating bool
	local                       bool
	// hinted says that the endpoint is meant for certain nodes or zones; ours that
	// this one is among them.
	hintedNode, ourNode bool
	hintedZone, ourZone bool
}

type slicePort struct {
	name     string
	protocol corev1.Protocol
	port     uint16
}

// slice is what matters here of an EndpointSlice.
type slice struct {
	ports     []slicePort
	endpoints []endpoint
}

func (t *Tracker) read(s *discoveryv1.EndpointSlice) (out slice) {
	for _, p := range s.Ports {
		if p.Port != nil {
			out.ports = append(out.ports, slicePort{ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, corev1.ProtocolTCP),
				uint16(*p.Port)})
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		// The addresses of one endpoint are interchangeable: clients use the first.
		ip, err := netip.ParseAddr(e.Addresses[0])
		if err != nil || !ip.Is4() {
			continue
		}
		ready := ptr.Deref(e.Conditions.Ready, true)
		n := endpoint{
			ip: ip, ready: ready, serving: ptr.Deref(e.Conditions.Serving, ready),
			terminating: ptr.Deref(e.Conditions.Terminating, false),
			local:       ptr.Deref(e.NodeName, "") == t.node,
		}
		if h := e.Hints; h != nil {
			n.hintedNode, n.hintedZone = len(h.ForNodes) > 0, len(h.ForZones) > 0
			n.ourNode = slices.ContainsFunc(h.ForNodes, func(f discoveryv1.ForNode) bool { return f.Name == t.node })
			n.ourZone = t.zone != "" &&
				slices.ContainsFunc(h.ForZones, func(f discoveryv1.ForZone) bool { return f.Name == t.zone })
		}
		out.endpoints = append(out.endpoints, n)
	}
	return out
}

// candidate is an endpoint with the number of one port.
type candidate struct {
	endpoint
	at netip.AddrPort
}

// choose fills in the endpoints of a port.
func (p *Port) choose(all []candidate) {
	ready := filter(all, func(c candidate) bool { return c.ready })
	ending := filter(all, func(c candidate) bool { return !c.ready && c.serving && c.terminating })
	p.Anywhere = len(ready)+len(ending) > 0
	p.Serving = targets(slices.Concat(ready, ending))
	p.Cluster = targets(firstOf(hinted(ready), ending))
	isLocal := func(c candidate) bool { return c.local }
	readyHere := filter(ready, isLocal)
	p.Local = targets(firstOf(readyHere, filter(ending, isLocal)))
	p.LocalEnds = len(p.Local) > 0 && len(readyHere) == 0
}

// hinted are the endpoints for this node or else this zone, if every endpoint has
// such a hint, and otherwise all.
func hinted(ready []candidate) []candidate {
	for _, by := range []struct{ has, ours func(candidate) bool }{
		{func(c candidate) bool { return c.hintedNode }, func(c candidate) bool { return c.ourNode }},
		{func(c candidate) bool { return c.hintedZone }, func(c candidate) bool { return c.ourZone }},
	} {
		if len(filter(ready, by.has)) == len(ready) {
			if ours := filter(ready, by.ours); len(ours) > 0 {
				return ours
			}
		}
	}
	return ready
}

func filter(list []candidate, keep func(candidate) bool) (out []candidate) {
	for _, c := range list {
		if keep(c) {
			out = append(out, c)
		}
	}
	return out
}

func firstOf(a, b []candidate) []candidate {
	if len(a) > 0 {
		return a
	}
	return b
}

// targets sorts, and names each once.
func targets(list []candidate) (out []netip.AddrPort) {
	for _, c := range list {
		out = append(out, c.at)
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}
