package zone

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
)

// services answers names below svc; labels are what stands before that.
func (z *Zone) services(q dns.Question, labels []string) result {
	n := len(labels)
	switch n {
	case 0:
		return nothing
	case 1:
		return result{exists: z.source.Namespace(labels[0])}
	}
	svc := z.source.Service(labels[n-1], labels[n-2])
	if svc == nil {
		return result{}
	}
	s := service{Service: svc, zone: z}
	switch n {
	case 2:
		return s.answer(q)
	case 3:
		if strings.HasPrefix(labels[0], "_") {
			return result{exists: len(s.ports("", labels[0])) > 0 && s.leads()}
		}
		return s.endpoint(q, labels[0])
	case 4:
		if strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_") {
			return s.port(q, labels[0], labels[1])
		}
	}
	return result{}
}

// service is a Service with what its names mean.
type service struct {
	*corev1.Service
	zone *Zone
}

func (s service) name() string { return s.Name + "." + s.Namespace + ".svc." + s.zone.domain }

func (s service) headless() bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }

// leads says whether the Service's name is one: that of a headless Service is only
// while there is an endpoint to go to, as with CoreDNS. Programs take a name that does
// not exist, and not one without addresses, as a reason to wait or to go elsewhere.
func (s service) leads() bool {
	if !s.headless() {
		return true
	}
	for range s.endpoints() {
		return true
	}
	return false
}

// addresses are the cluster addresses of a Service.
func addresses(svc *corev1.Service) (out []netip.Addr) {
	list := svc.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{svc.Spec.ClusterIP}
	}
	for _, text := range list {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// answer answers the name of the Service itself.
func (s service) answer(q dns.Question) result {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return s.alias(q)
	}
	if !s.leads() {
		return result{}
	}
	switch q.Qtype {
	case dns.TypeA, dns.TypeAAAA:
		ips := addresses(s.Service)
		if s.headless() {
			ips = s.readyAddresses()
		}
		return result{exists: true, records: addressRecords(q.Name, q.Qtype, ips)}
	case dns.TypeSRV:
		return s.serve(q, s.ports("", ""))
	}
	return nothing
}

// alias answers an external name, whatever type was asked for. One that looks
// like an address is none: no name server would know it.
func (s service) alias(q dns.Question) result {
	target := dns.CanonicalName(s.Spec.ExternalName)
	if _, err := netip.ParseAddr(strings.TrimSuffix(target, ".")); err == nil || target == "." {
		return nothing
	}
	out := result{exists: true, records: []dns.RR{&dns.CNAME{Hdr: header(q.Name, dns.TypeCNAME), Target: target}}}
	if q.Qtype != dns.TypeCNAME {
		out.target = target
	}
	return out
}

// endpoint answers the name of one endpoint.
func (s service) endpoint(q dns.Question, host string) result {
	var ips []netip.Addr
	for e := range s.endpoints() {
		if e.host == host {
			ips = append(ips, e.ip)
		}
	}
	return result{exists: len(ips) > 0, records: addressRecords(q.Name, q.Qtype, unique(ips))}
}

// port answers _PORT._PROTOCOL.
func (s service) port(q dns.Question, port, protocol string) result {
	ports := s.ports(strings.TrimPrefix(port, "_"), protocol)
	if len(ports) == 0 {
		return result{}
	}
	found := s.serve(q, ports)
	switch {
	case len(found.records) == 0:
		return result{} // headless, and no endpoint has the port
	case q.Qtype != dns.TypeSRV:
		return nothing
	}
	return found
}

// portKey names a port of a Service.
type portKey struct {
	name     string
	protocol corev1.Protocol
}

// ports are the ports with that name (any, if empty) and that protocol, written
// as a label (any, if empty). A port without a name has no name of its own.
func (s service) ports(name, protocol string) (out []corev1.ServicePort) {
	for _, p := range s.Spec.Ports {
		if (name == "" || p.Name == name) && (protocol == "" || strings.EqualFold("_"+string(p.Protocol), protocol)) {
			out = append(out, p)
		}
	}
	return out
}

// serve is the SRV records of some ports, and the addresses that they lead to.
func (s service) serve(q dns.Question, ports []corev1.ServicePort) result {
	out := result{exists: true}
	add := func(target string, port uint16) {
		out.records = append(out.records, &dns.SRV{Hdr: header(q.Name, dns.TypeSRV), Weight: 1, Port: port, Target: target})
	}
	if !s.headless() {
		for _, p := range ports {
			add(s.name(), uint16(p.Port))
		}
		out.extra = bothFamilies(s.name(), addresses(s.Service))
		return share(out)
	}
	wanted := map[portKey]bool{}
	for _, p := range ports {
		wanted[portKey{p.Name, p.Protocol}] = true
	}
	type target struct {
		host string
		port uint16
	}
	known, glued := map[target]bool{}, map[endpoint]bool{}
	for e, slice := range s.endpoints() {
		name := e.host + "." + s.name()
		for _, p := range slice.Ports {
			if p.Port == nil || !wanted[keyOf(p)] || known[target{e.host, uint16(*p.Port)}] {
				continue
			}
			known[target{e.host, uint16(*p.Port)}] = true
			add(name, uint16(*p.Port))
			if !glued[e] {
				glued[e] = true
				out.extra = append(out.extra, bothFamilies(name, []netip.Addr{e.ip})...)
			}
		}
	}
	return share(out)
}

// share gives all targets the same part of the clients, a hundred parts in all.
func share(out result) result {
	for _, r := range out.records {
		r.(*dns.SRV).Weight = uint16(max(1, 100/len(out.records)))
	}
	return out
}

func bothFamilies(name string, ips []netip.Addr) []dns.RR {
	return append(addressRecords(name, dns.TypeA, ips), addressRecords(name, dns.TypeAAAA, ips)...)
}
