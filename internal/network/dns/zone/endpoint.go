package zone

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is one address behind a Service, and the label that leads to it.
type endpoint struct {
	host string
	ip   netip.Addr
}

// endpoints goes through the ready addresses of a Service with their slices. An
// address that stands in two slices comes twice.
func (s service) endpoints() iter.Seq2[endpoint, *discoveryv1.EndpointSlice] {
	return func(yield func(endpoint, *discoveryv1.EndpointSlice) bool) {
		for _, slice := range s.zone.source.Slices(s.Namespace, s.Name) {
			if slice.AddressType == discoveryv1.AddressTypeFQDN {
				continue
			}
			for i := range slice.Endpoints {
				for _, e := range ready(&slice.Endpoints[i]) {
					if !yield(e, slice) {
						return
					}
				}
			}
		}
	}
}

// ready is the addresses of an endpoint that takes requests; unknown counts as
// ready. What a Service publishes before it is ready is marked ready by who
// writes the slices.
func ready(e *discoveryv1.Endpoint) (out []endpoint) {
	if e.Conditions.Ready != nil && !*e.Conditions.Ready {
		return nil
	}
	for _, text := range e.Addresses {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		host := dashed(ip)
		if e.Hostname != nil && *e.Hostname != "" {
			host = *e.Hostname
		}
		out = append(out, endpoint{host: host, ip: ip})
	}
	return out
}

func (s service) readyAddresses() []netip.Addr {
	var ips []netip.Addr
	for e := range s.endpoints() {
		ips = append(ips, e.ip)
	}
	return unique(ips)
}

// unique removes repetitions and keeps the order.
func unique(ips []netip.Addr) []netip.Addr {
	seen := make(map[netip.Addr]bool, len(ips))
	out := ips[:0]
	for _, ip := range ips {
		if !seen[ip] {
			seen[ip] = true
			out = append(out, ip)
		}
	}
	return out
}

func keyOf(p discoveryv1.EndpointPort) portKey {
	key := portKey{protocol: corev1.ProtocolTCP}
	if p.Name != nil {
		key.name = *p.Name
	}
	if p.Protocol != nil {
		key.protocol = *p.Protocol
	}
	return key
}

// reverse answers for an address that somebody here has.
func (z *Zone) reverse(q dns.Question, name string) (Answer, bool) {
	ip, ok := parseReverse(name)
	if !ok || q.Qtype != dns.TypePTR {
		return Answer{}, false
	}
	var names []string
	for _, svc := range z.source.ServicesAt(ip) {
		names = append(names, service{Service: svc, zone: z}.name())
	}
	if len(names) == 0 {
		names = z.endpointNames(ip)
	}
	var out Answer
	for _, n := range names {
		out.Records = append(out.Records, &dns.PTR{Hdr: header(q.Name, dns.TypePTR), Ptr: n})
	}
	return out, len(names) > 0
}

// endpointNames are the full names of the endpoints with a host name that have
// the address.
func (z *Zone) endpointNames(ip netip.Addr) (out []string) {
	for _, slice := range z.source.SlicesAt(ip) {
		name := slice.Labels[discoveryv1.LabelServiceName]
		if name == "" {
			continue
		}
		for i := range slice.Endpoints {
			if hostname := slice.Endpoints[i].Hostname; hostname == nil || *hostname == "" {
				continue
			}
			for _, e := range ready(&slice.Endpoints[i]) {
				full := e.host + "." + name + "." + slice.Namespace + ".svc." + z.domain
				if e.ip == ip && !slices.Contains(out, full) {
					out = append(out, full)
				}
			}
		}
	}
	return out
}

// parseReverse reads the name under which an address is looked up.
func parseReverse(name string) (netip.Addr, bool) {
	if text, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		parts := strings.Split(text, ".")
		if len(parts) != 4 {
			return netip.Addr{}, false
		}
		ip, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
		return ip, err == nil
	}
	text, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(text) != 63 {
		return netip.Addr{}, false
	}
	var b strings.Builder
	for i := len(text) - 1; i >= 0; i -= 2 {
		b.WriteByte(text[i])
		if digits := (len(text)-1-i)/2 + 1; digits%4 == 0 && digits < 32 {
			b.WriteByte(':')
		}
	}
	ip, err := netip.ParseAddr(b.String())
	return ip, err == nil
}
