package zone

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TTL is how long clients may remember an answer, in seconds. It is short
// because the name server is on the client's own node.
const TTL = 5

// Source finds the objects that names speak of. What it returns is only read.
type Source interface {
	// Namespace says whether there is a namespace of that name.
	Namespace(name string) bool
	// Service is nil if there is none of that name.
	Service(namespace, name string) *corev1.Service
	// Slices are the EndpointSlices of a Service.
	Slices(namespace, service string) []*discoveryv1.EndpointSlice
	// ServicesAt are the Services with that cluster address, SlicesAt the
	// EndpointSlices with an endpoint there that has a host name.
	ServicesAt(ip netip.Addr) []*corev1.Service
	SlicesAt(ip netip.Addr) []*discoveryv1.EndpointSlice
}

// Zone answers questions about one cluster.
type Zone struct {
	domain     string
	nameserver netip.Addr
	source     Source
}

// New returns the zone of a cluster with that domain, such as cluster.local,
// whose name server has that address.
func New(domain string, nameserver netip.Addr, source Source) *Zone {
	return &Zone{domain: dns.CanonicalName(domain), nameserver: nameserver, source: source}
}

// Answer is an answer to a question. A name that exists and has no record of the
// type that was asked for has no records and no error code.
type Answer struct {
	Rcode   int
	Records []dns.RR
	// Extra are the addresses of names in Records.
	Extra []dns.RR
	// Negative is the zone's SOA record when there are no records.
	Negative []dns.RR
	// Target is a name outside the zone, or another one in it, to which the name
	// is an alias; it has to be asked for too. Empty for none.
	Target string
}

// Holds says whether a name is in the zone, so that nobody else can answer for it.
func (z *Zone) Holds(name string) bool { return dns.IsSubDomain(z.domain, dns.CanonicalName(name)) }

// Answer answers a question. It returns false for a name that others may know:
// one outside the zone, and an address that nobody here has.
func (z *Zone) Answer(q dns.Question) (Answer, bool) {
	name := dns.CanonicalName(q.Name)
	if !z.Holds(name) {
		return z.reverse(q, name)
	}
	var found result
	if name == z.domain {
		found = z.apex(q)
	} else {
		labels := dns.SplitDomainName(strings.TrimSuffix(name, "."+z.domain))
		switch last := len(labels) - 1; labels[last] {
		case "svc":
			found = z.services(q, labels[:last])
		case "pod":
			found = z.pods(q, labels[:last])
		default:
			found = z.itself(q, labels)
		}
	}
	answer := Answer{Records: found.records, Extra: found.extra, Target: found.target}
	if !found.exists {
		answer.Rcode = dns.RcodeNameError
	}
	if len(answer.Records) == 0 {
		answer.Negative = []dns.RR{z.soa(z.domain)}
	}
	return answer, true
}

// result is what a name was found to be.
type result struct {
	exists         bool
	records, extra []dns.RR
	target         string
}

// nothing is a name that exists without a record of the asked type.
var nothing = result{exists: true}

func header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: TTL}
}

func (z *Zone) soa(name string) dns.RR {
	return &dns.SOA{
		Hdr: header(name, dns.TypeSOA), Ns: "ns.dns." + z.domain, Mbox: "hostmaster." + z.domain,
		// Nobody transfers this zone, so its serial number says nothing.
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: TTL,
	}
}

func (z *Zone) apex(q dns.Question) result {
	switch q.Qtype {
	case dns.TypeSOA:
		return result{exists: true, records: []dns.RR{z.soa(q.Name)}}
	case dns.TypeNS:
		ns := "ns.dns." + z.domain
		return result{
			exists: true, records: []dns.RR{&dns.NS{Hdr: header(q.Name, dns.TypeNS), Ns: ns}},
			extra: addressRecords(ns, dns.TypeA, []netip.Addr{z.nameserver}),
		}
	}
	return nothing
}

// itself answers what is known of the zone and its name server.
func (z *Zone) itself(q dns.Question, labels []string) result {
	switch strings.Join(labels, ".") {
	case "dns":
		return nothing
	case "ns.dns":
		return result{exists: true, records: addressRecords(q.Name, q.Qtype, []netip.Addr{z.nameserver})}
	case "dns-version":
		if q.Qtype != dns.TypeTXT {
			return nothing
		}
		return result{exists: true, records: []dns.RR{&dns.TXT{Hdr: header(q.Name, dns.TypeTXT), Txt: []string{"1.1.0"}}}}
	}
	return result{}
}

// pods answers a-b-c-d.NAMESPACE.pod with the address in the name.
func (z *Zone) pods(q dns.Question, labels []string) result {
	switch {
	case len(labels) == 0:
		return nothing
	case len(labels) > 2 || !z.source.Namespace(labels[len(labels)-1]):
		return result{}
	case len(labels) == 1:
		return nothing
	}
	ip, ok := parseDashed(labels[0])
	if !ok {
		return result{}
	}
	return result{exists: true, records: addressRecords(q.Name, q.Qtype, []netip.Addr{ip})}
}

// addressRecords are the A or AAAA records of those addresses that are of the
// asked type; none for other types.
func addressRecords(name string, kind uint16, ips []netip.Addr) (out []dns.RR) {
	for _, ip := range ips {
		switch {
		case kind == dns.TypeA && ip.Is4():
			out = append(out, &dns.A{Hdr: header(name, dns.TypeA), A: ip.AsSlice()})
		case kind == dns.TypeAAAA && ip.Is6():
			out = append(out, &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: ip.AsSlice()})
		}
	}
	return out
}

// dashed writes an address as a label.
func dashed(ip netip.Addr) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
}

// parseDashed reads an address that is written as a label.
func parseDashed(label string) (netip.Addr, bool) {
	separator := ":"
	if strings.Count(label, "-") == 3 && !strings.Contains(label, "--") {
		separator = "."
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", separator))
	return ip, err == nil && ip.Zone() == ""
}
