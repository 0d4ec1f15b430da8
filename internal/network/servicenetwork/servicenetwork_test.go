package servicenetwork

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func cidr(name string, change func(*networkingv1.ServiceCIDR), prefixes ...string) *networkingv1.ServiceCIDR {
	c := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: prefixes}}
	if change != nil {
		change(c)
	}
	return c
}

func leaving(c *networkingv1.ServiceCIDR) { c.DeletionTimestamp = &metav1.Time{} }

func unready(c *networkingv1.ServiceCIDR) {
	c.Status.Conditions = []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse}}
}

var configured = netip.MustParsePrefix("10.96.0.0/16")

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		cidrs []*networkingv1.ServiceCIDR
		want  string
	}{
		"none yet":                {nil, "[{10.96.0.0/16 kubernetes  true}]"},
		"the default is not ours": {[]*networkingv1.ServiceCIDR{cidr(Default, nil, "10.90.0.0/16")}, "[{10.90.0.0/16 kubernetes 7 true}]"},
		"the default comes first": {
			[]*networkingv1.ServiceCIDR{cidr("a", nil, "10.97.0.0/24"), cidr(Default, nil, "10.96.0.0/16"), cidr("z", leaving, "10.98.0.0/24"), cidr("y", unready, "10.99.0.0/24")},
			"[{10.96.0.0/16 kubernetes 7 true} {10.97.0.0/24 a 7 true} {10.99.0.0/24 y 7 false} {10.98.0.0/24 z 7 false}]",
		},
		"of two families one counts": {[]*networkingv1.ServiceCIDR{cidr(Default, nil, "10.96.0.0/16", "fd00::/108")}, "[{10.96.0.0/16 kubernetes 7 true}]"},
	} {
		if got := fmt.Sprint(Of(c.cidrs, configured)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestCovering(t *testing.T) {
	networks := Of([]*networkingv1.ServiceCIDR{cidr(Default, nil, "10.96.0.0/24"), cidr("b", leaving, "10.97.0.0/24"), cidr("c", nil, "10.97.0.0/28")}, configured)
	for text, want := range map[string]string{
		"10.96.0.0": "", "10.96.0.1": Default, "10.96.0.254": Default, "10.96.0.255": "", "10.97.0.1": "c", "10.97.0.15": "", "10.97.0.16": "", "10.98.0.1": "",
	} {
		if n, _ := Covering(networks, netip.MustParseAddr(text)); n.CIDR != want {
			t.Errorf("%s is of %q, want %q", text, n.CIDR, want)
		}
	}
	if !Contain(networks, netip.MustParseAddr("10.97.0.200")) || Contain(networks, netip.MustParseAddr("10.98.0.1")) {
		t.Error("addresses of a ServiceCIDR that is to go are in it, and others are not")
	}
}

func TestStranded(t *testing.T) {
	a, b, c := cidr("a", leaving, "10.97.0.0/24"), cidr("b", nil, "10.97.0.0/25"), cidr("c", leaving, "10.97.0.0/16")
	one := []netip.Addr{netip.MustParseAddr("10.98.0.1"), netip.MustParseAddr("10.97.0.1")}
	for name, x := range map[string]struct {
		cidrs []*networkingv1.ServiceCIDR
		want  bool
	}{
		"nobody else has it":         {[]*networkingv1.ServiceCIDR{a}, true},
		"another has it":             {[]*networkingv1.ServiceCIDR{a, b}, false},
		"the other is to go as well": {[]*networkingv1.ServiceCIDR{a, c}, true},
	} {
		if _, got := Stranded(Of(x.cidrs, configured), "a", one); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
	if ip, held := Stranded(Of([]*networkingv1.ServiceCIDR{a}, configured), "a", one[:1]); held {
		t.Errorf("%s holds what it is not of", ip)
	}
}

// naive lists what may be given out by looking at every address that there is.
func naive(networks []Network, taken map[netip.Addr]bool) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, n := range networks {
		var all []netip.Addr
		for ip := n.Prefix.Addr(); n.Prefix.Contains(ip); ip = ip.Next() {
			all = append(all, ip)
		}
		end := len(all)
		if n.Prefix.Addr().Is4() {
			end--
		}
		for i := 1; i < end && n.Open; i++ {
			if !taken[all[i]] {
				out[all[i]] = true
			}
		}
	}
	return out
}

// TestFreeAgainstANaiveAllocator takes addresses of random networks until there is none, and gives some back between.
func TestFreeAgainstANaiveAllocator(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var networks []Network
		for i := range 1 + r.IntN(4) {
			base := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(256))})
			bits := 24 + r.IntN(9)
			if seed%4 == 3 {
				base, bits = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(r.IntN(256))}), 120+r.IntN(9)
			}
			networks = append(networks, Network{Prefix: netip.PrefixFrom(base, bits).Masked(), CIDR: fmt.Sprint(i), Open: r.IntN(4) > 0})
		}
		taken := map[netip.Addr]bool{}
		for step := 0; ; step++ {
			may := naive(networks, taken)
			ip, ok := Free(networks, func(ip netip.Addr) bool { return taken[ip] }, r.Uint64N)
			if ok != (len(may) > 0) || ok && !may[ip] {
				t.Fatalf("seed %d, step %d: of %v it gave %v %v; %d are free", seed, step, networks, ip, ok, len(may))
			}
			if n, covered := Covering(networks, ip); ok && (!covered || !n.Open) {
				t.Fatalf("seed %d: nobody may have %s", seed, ip)
			}
			if !ok {
				break
			}
			taken[ip] = true
			for given := range taken {
				if r.IntN(3) == 0 && step < 200 {
					delete(taken, given)
				}
				break
			}
		}
	}
}

// The first addresses are for those who ask for them.
func TestFirstAddressesAreGivenOutLast(t *testing.T) {
	networks := Of([]*networkingv1.ServiceCIDR{cidr(Default, nil, "10.96.0.0/24"), cidr("b", nil, "10.97.0.0/24")}, configured)
	taken := map[netip.Addr]bool{}
	early := netip.MustParsePrefix("10.96.0.0/28")
	for i := 0; ; i++ {
		ip, ok := Free(networks, func(ip netip.Addr) bool { return taken[ip] }, rand.Uint64N)
		if !ok {
			if i != 2*254 {
				t.Errorf("%d addresses were given out", i)
			}
			return
		}
		if early.Contains(ip) && i < 2*(254-16) {
			t.Fatalf("%s is given out before others, as number %d", ip, i)
		}
		taken[ip] = true
	}
}

func TestRoom(t *testing.T) {
	taken := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.97.0.3"), netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("fd00::1")}
	cidrs := []*networkingv1.ServiceCIDR{
		cidr(Default, nil, "10.96.0.0/24", "fd00::/120"), cidr("inner", nil, "10.96.0.16/28"), cidr("more", nil, "10.97.0.0/28"), cidr("leaves", leaving, "10.99.0.0/24"),
	}
	if free, all := Room(cidrs, true, taken); free != 254+14-2 || all != 254+14 {
		t.Errorf("of IPv4 %d of %d are free", free, all)
	}
	if free, all := Room(cidrs, false, taken); free != 254 || all != 255 {
		t.Errorf("of IPv6 %d of %d are free", free, all)
	}
	if free, all := Room(nil, true, taken); free != 0 || all != 0 {
		t.Errorf("of nothing %d of %d are free", free, all)
	}
}
