package zone

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"
	"pgregory.net/rapid"
)

func anyAddress(t *rapid.T) netip.Addr {
	raw := rapid.SliceOfN(rapid.Byte(), 4, 4)
	if rapid.Bool().Draw(t, "six") {
		raw = rapid.SliceOfN(rapid.Byte(), 16, 16)
	}
	ip, _ := netip.AddrFromSlice(raw.Draw(t, "address"))
	return ip
}

func TestAddressesSurviveNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ip := anyAddress(t)
		reverse, err := dns.ReverseAddr(ip.String())
		if err != nil {
			t.Fatal(err)
		}
		// In an address that was mapped from IPv4 the last part has dots.
		if got, ok := parseReverse(reverse); !ok || got.Unmap() != ip.Unmap() {
			t.Errorf("%s became %v in %s", ip, got, reverse)
		}
		if got, ok := parseDashed(dashed(ip)); !ip.Is4In6() && (!ok || got != ip) {
			t.Errorf("%s became %v in %s", ip, got, dashed(ip))
		}
	})
}

// Whatever is asked: what the zone holds is answered by it, with records or a
// negative record, and all records are for what was asked.
func TestEveryQuestionHasAnAnswer(t *testing.T) {
	z := testZone()
	label := rapid.SampledFrom([]string{"svc", "pod", "prod", "default", "web", "fleet", "elsewhere", "_http", "_tcp", "_udp", "a", "c", "10-244-1-2", "dns", "ns", "*", "_", "-"})
	rapid.Check(t, func(t *rapid.T) {
		name := "cluster.local."
		for _, l := range rapid.SliceOfN(label, 0, 6).Draw(t, "labels") {
			name = l + "." + name
		}
		kind := rapid.SampledFrom([]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeCNAME, dns.TypePTR, dns.TypeTXT, dns.TypeANY, dns.TypeSOA}).Draw(t, "type")
		answer, ok := z.Answer(dns.Question{Name: name, Qtype: kind, Qclass: dns.ClassINET})
		switch {
		case !ok:
			t.Errorf("%s is left to others", name)
		case (len(answer.Records) == 0) != (len(answer.Negative) == 1):
			t.Errorf("%s has %d records and %d negative ones", name, len(answer.Records), len(answer.Negative))
		case answer.Rcode != dns.RcodeSuccess && len(answer.Records) > 0:
			t.Errorf("%s does not exist and has records %v", name, answer.Records)
		}
		for _, r := range answer.Records {
			if h := r.Header(); h.Name != name || h.Rrtype != kind && h.Rrtype != dns.TypeCNAME {
				t.Errorf("%s %s was answered by %s", dns.TypeToString[kind], name, r)
			}
		}
	})
}

// The A records of a headless Service are its ready addresses, each once, however
// they are spread over slices.
func TestHeadlessServiceIsItsReadyAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{namespaces: []string{"n"}}
		svc := service1("n", "s", "None", "p")
		w.services = append(w.services, svc)
		var want []string
		for range rapid.IntRange(0, 4).Draw(t, "slices") {
			texts := rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.1", "x@10.0.0.2", "!10.0.0.3", "10.0.0.4", "!y@10.0.0.5"}), 0, 4).Draw(t, "endpoints")
			w.slices = append(w.slices, slice("n", "s", []string{"p"}, texts...))
			for _, text := range texts {
				if ip := map[string]string{"10.0.0.1": "10.0.0.1", "x@10.0.0.2": "10.0.0.2", "10.0.0.4": "10.0.0.4"}[text]; ip != "" {
					want = append(want, ip)
				}
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		z := New("cluster.local", netip.MustParseAddr("10.96.0.10"), w)
		var got []string
		answer, _ := z.Answer(dns.Question{Name: "s.n.svc.cluster.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET})
		for _, r := range answer.Records {
			got = append(got, r.(*dns.A).A.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the addresses are %v, want %v", got, want)
		}
	})
}
