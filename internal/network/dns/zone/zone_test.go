package zone

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// world is a Source of lists.
type world struct {
	namespaces []string
	services   []*corev1.Service
	slices     []*discoveryv1.EndpointSlice
}

func (w *world) Namespace(name string) bool { return slices.Contains(w.namespaces, name) }

func (w *world) Service(namespace, name string) *corev1.Service {
	for _, s := range w.services {
		if s.Namespace == namespace && s.Name == name {
			return s
		}
	}
	return nil
}

func (w *world) Slices(namespace, service string) (out []*discoveryv1.EndpointSlice) {
	for _, s := range w.slices {
		if s.Namespace == namespace && s.Labels[discoveryv1.LabelServiceName] == service {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) ServicesAt(ip netip.Addr) (out []*corev1.Service) {
	for _, s := range w.services {
		if slices.Contains(addresses(s), ip) {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) SlicesAt(netip.Addr) []*discoveryv1.EndpointSlice { return w.slices }

func service1(namespace, name, ip string, ports ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}}}
	for i, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: p, Port: int32(80 + i), Protocol: corev1.ProtocolTCP})
	}
	return s
}

// slice makes an EndpointSlice of TCP ports 8080, 8081, ...; an endpoint is written
// HOST@ADDRESS or ADDRESS, with an exclamation mark in front when it is not ready.
func slice(namespace, service string, ports []string, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: service + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i, p := range ports {
		number := int32(8080 + i)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p, Port: &number})
	}
	for _, text := range endpoints {
		text, unready := strings.CutPrefix(text, "!")
		host, ip, named := strings.Cut(text, "@")
		e := discoveryv1.Endpoint{Addresses: []string{ip}}
		if named {
			e.Hostname = &host
		} else {
			e.Addresses = []string{host}
		}
		if unready {
			no := false
			e.Conditions.Ready = &no
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func testZone() *Zone {
	external := service1("prod", "elsewhere", "")
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "db.example.COM"
	address := service1("prod", "number", "")
	address.Spec.Type, address.Spec.ExternalName = corev1.ServiceTypeExternalName, "10.1.2.3"
	dual := service1("prod", "dual", "10.96.0.30")
	dual.Spec.ClusterIPs = append(dual.Spec.ClusterIPs, "fd00::30")
	return New("cluster.local", netip.MustParseAddr("10.96.0.10"), &world{
		namespaces: []string{"default", "prod"},
		services: []*corev1.Service{
			service1("prod", "web", "10.96.0.20", "http", "admin"), service1("prod", "fleet", "None", "metrics", "debug"), service1("prod", "empty", "None", "metrics"),
			external, address, dual,
		},
		slices: []*discoveryv1.EndpointSlice{
			slice("prod", "web", []string{"http", "admin"}, "10.244.1.5"),
			slice("prod", "fleet", []string{"metrics"}, "a@10.244.1.2", "10.244.2.2", "!c@10.244.3.2"),
			slice("prod", "fleet", []string{"debug"}, "a@10.244.1.2"),
		},
	})
}

// ask writes the answer as lines: records, additional ones after a plus sign, the
// error if there is one, "no data" for a name without such a record.
func ask(z *Zone, kind, name string) string {
	answer, ok := z.Answer(dns.Question{Name: name, Qtype: dns.StringToType[kind], Qclass: dns.ClassINET})
	if !ok {
		return "not ours"
	}
	if len(answer.Records) == 0 {
		if len(answer.Negative) != 1 || answer.Negative[0].Header().Name != "cluster.local." {
			return "a negative answer without the zone's SOA record"
		}
		if answer.Rcode == dns.RcodeSuccess {
			return "no data"
		}
		return dns.RcodeToString[answer.Rcode]
	}
	var lines []string
	for i, r := range append(answer.Records, answer.Extra...) {
		h := r.Header()
		if h.Ttl != TTL || h.Class != dns.ClassINET {
			return "a record with another time or class: " + r.String()
		}
		line := dns.TypeToString[h.Rrtype] + " " + strings.TrimPrefix(r.String(), h.String())
		if i >= len(answer.Records) {
			line = "+ " + h.Name + " " + line
		}
		lines = append(lines, line)
	}
	if answer.Target != "" {
		lines = append(lines, "then "+answer.Target)
	}
	return strings.Join(lines, "\n")
}

func TestAnswers(t *testing.T) {
	z := testZone()
	for _, c := range []struct{ kind, name, want string }{
		{"A", "web.prod.svc.cluster.local.", "A 10.96.0.20"},
		{"A", "WEB.Prod.svc.cluster.LOCAL.", "A 10.96.0.20"},
		{"AAAA", "web.prod.svc.cluster.local.", "no data"},
		{"MX", "web.prod.svc.cluster.local.", "no data"},
		{"A", "dual.prod.svc.cluster.local.", "A 10.96.0.30"},
		{"AAAA", "dual.prod.svc.cluster.local.", "AAAA fd00::30"},
		{"A", "nobody.prod.svc.cluster.local.", "NXDOMAIN"},
		{"A", "web.default.svc.cluster.local.", "NXDOMAIN"},
		{"A", "web.nowhere.svc.cluster.local.", "NXDOMAIN"},
		{"A", "prod.svc.cluster.local.", "no data"},
		{"A", "nowhere.svc.cluster.local.", "NXDOMAIN"},
		{"A", "svc.cluster.local.", "no data"},
		{"A", "cluster.local.", "no data"},
		{"A", "x.cluster.local.", "NXDOMAIN"},
		{"A", "too.many.labels.web.prod.svc.cluster.local.", "NXDOMAIN"},

		{"A", "fleet.prod.svc.cluster.local.", "A 10.244.1.2\nA 10.244.2.2"},
		{"A", "empty.prod.svc.cluster.local.", "NXDOMAIN"}, // nobody is ready
		{"AAAA", "empty.prod.svc.cluster.local.", "NXDOMAIN"},
		{"SRV", "empty.prod.svc.cluster.local.", "NXDOMAIN"},
		{"MX", "empty.prod.svc.cluster.local.", "NXDOMAIN"},
		{"AAAA", "fleet.prod.svc.cluster.local.", "no data"},
		{"A", "a.fleet.prod.svc.cluster.local.", "A 10.244.1.2"},
		{"A", "10-244-2-2.fleet.prod.svc.cluster.local.", "A 10.244.2.2"},
		{"A", "10-244-1-2.fleet.prod.svc.cluster.local.", "NXDOMAIN"}, // it has a host name
		{"A", "c.fleet.prod.svc.cluster.local.", "NXDOMAIN"},          // it is not ready
		{"A", "10-244-1-5.web.prod.svc.cluster.local.", "A 10.244.1.5"},

		{"SRV", "_http._tcp.web.prod.svc.cluster.local.", "SRV 0 100 80 web.prod.svc.cluster.local.\n+ web.prod.svc.cluster.local. A 10.96.0.20"},
		{"SRV", "_http._udp.web.prod.svc.cluster.local.", "NXDOMAIN"},
		{"SRV", "_other._tcp.web.prod.svc.cluster.local.", "NXDOMAIN"},
		{"A", "_http._tcp.web.prod.svc.cluster.local.", "no data"},
		{"SRV", "_tcp.web.prod.svc.cluster.local.", "no data"},
		{"SRV", "_udp.web.prod.svc.cluster.local.", "NXDOMAIN"},
		{"SRV", "_metrics._tcp.fleet.prod.svc.cluster.local.", "SRV 0 50 8080 a.fleet.prod.svc.cluster.local.\nSRV 0 50 8080 10-244-2-2.fleet.prod.svc.cluster.local." +
			"\n+ a.fleet.prod.svc.cluster.local. A 10.244.1.2\n+ 10-244-2-2.fleet.prod.svc.cluster.local. A 10.244.2.2"},
		{"SRV", "_metrics._tcp.empty.prod.svc.cluster.local.", "NXDOMAIN"},
		{"A", "_metrics._tcp.empty.prod.svc.cluster.local.", "NXDOMAIN"},
		{"SRV", "_tcp.empty.prod.svc.cluster.local.", "NXDOMAIN"},
		{"A", "_metrics._tcp.fleet.prod.svc.cluster.local.", "no data"},
		{"SRV", "web.prod.svc.cluster.local.", "SRV 0 50 80 web.prod.svc.cluster.local.\nSRV 0 50 81 web.prod.svc.cluster.local.\n+ web.prod.svc.cluster.local. A 10.96.0.20"},

		{"A", "elsewhere.prod.svc.cluster.local.", "CNAME db.example.com.\nthen db.example.com."},
		{"CNAME", "elsewhere.prod.svc.cluster.local.", "CNAME db.example.com."},
		{"A", "number.prod.svc.cluster.local.", "no data"},

		{"A", "10-244-9-9.prod.pod.cluster.local.", "A 10.244.9.9"},
		{"AAAA", "fd00--9.prod.pod.cluster.local.", "AAAA fd00::9"},
		{"A", "10-244-9-9.nowhere.pod.cluster.local.", "NXDOMAIN"},
		{"A", "somebody.prod.pod.cluster.local.", "NXDOMAIN"},
		{"A", "x.10-244-9-9.prod.pod.cluster.local.", "NXDOMAIN"},
		{"A", "prod.pod.cluster.local.", "no data"},

		{"PTR", "20.0.96.10.in-addr.arpa.", "PTR web.prod.svc.cluster.local."},
		{"PTR", "2.1.244.10.in-addr.arpa.", "PTR a.fleet.prod.svc.cluster.local."},
		{"PTR", "2.2.244.10.in-addr.arpa.", "not ours"},
		{"PTR", "0.3.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", "PTR dual.prod.svc.cluster.local."},
		{"PTR", "96.10.in-addr.arpa.", "not ours"},
		{"A", "20.0.96.10.in-addr.arpa.", "not ours"},

		{"SOA", "cluster.local.", "SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"},
		{"NS", "cluster.local.", "NS ns.dns.cluster.local.\n+ ns.dns.cluster.local. A 10.96.0.10"},
		{"A", "ns.dns.cluster.local.", "A 10.96.0.10"},
		{"A", "dns.cluster.local.", "no data"},
		{"TXT", "dns-version.cluster.local.", `TXT "1.1.0"`},
		{"A", "example.com.", "not ours"},
		{"A", "mycluster.local.", "not ours"},
		{"A", ".", "not ours"},
	} {
		if got := ask(z, c.kind, c.name); got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.kind, c.name, got, c.want)
		}
	}
}
