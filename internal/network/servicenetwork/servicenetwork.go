// Package servicenetwork has facts about ServiceCIDRs: which addresses Services may be given, and which would be left
// without a network if one went; pure.
package servicenetwork

import (
	"cmp"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Default is the name of the ServiceCIDR that every cluster has.
	Default = "kubernetes"
	// Finalizer keeps a ServiceCIDR as long as Services have addresses of it.
	Finalizer = "networking.k8s.io/service-cidr-finalizer"
)

// Network is a range of addresses of a ServiceCIDR.
type Network struct {
	Prefix netip.Prefix
	// CIDR is the ServiceCIDR's name, and Version its resource version.
	CIDR, Version string
	// Open says that addresses may be given out: it is ready, and nobody wants it to go.
	Open bool
}

// Of lists the networks of the ServiceCIDRs, that of the default one first. If that one is not there, it is as the
// server would make it.
func Of(cidrs []*networkingv1.ServiceCIDR, configured netip.Prefix) (out []Network) {
	out = ofFamily(cidrs, configured.Addr().Is4())
	if !slices.ContainsFunc(cidrs, func(c *networkingv1.ServiceCIDR) bool { return c.Name == Default }) {
		out = append(out, Network{Prefix: configured.Masked(), CIDR: Default, Open: true})
	}
	slices.SortFunc(out, func(a, b Network) int {
		if (a.CIDR == Default) != (b.CIDR == Default) {
			if a.CIDR == Default {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.CIDR, b.CIDR)
	})
	return out
}

// ofFamily lists the networks of IPv4, or those of IPv6.
func ofFamily(cidrs []*networkingv1.ServiceCIDR, is4 bool) (out []Network) {
	for _, c := range cidrs {
		for _, text := range c.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() == is4 {
				out = append(out, Network{Prefix: p.Masked(), CIDR: c.Name, Version: c.ResourceVersion, Open: open(c)})
			}
		}
	}
	return out
}

// Room counts the addresses of IPv4, or of IPv6, that Services may be given, and those of them that nobody has.
func Room(cidrs []*networkingv1.ServiceCIDR, is4 bool, taken []netip.Addr) (free, all uint64) {
	var counted []Network
	networks := ofFamily(cidrs, is4)
	// A network within another one has no more.
	slices.SortStableFunc(networks, func(a, b Network) int { return cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()) })
	for _, n := range networks {
		if n.Open && !Contain(counted, n.Prefix.Addr()) {
			counted = append(counted, n)
			all += size(n.Prefix)
		}
	}
	free = all
	for _, ip := range taken {
		if _, given := Covering(counted, ip); given && free > 0 {
			free--
		}
	}
	return free, all
}

// open: one of which nothing is said yet is ready, as in Kubernetes.
func open(c *networkingv1.ServiceCIDR) bool {
	ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	return c.DeletionTimestamp == nil && (ready == nil || ready.Status == metav1.ConditionTrue)
}

// Covering is an open network in which a Service may have the address.
func Covering(networks []Network, ip netip.Addr) (Network, bool) {
	for _, n := range networks {
		if first, last := bounds(n.Prefix); n.Open && n.Prefix.Contains(ip) && !ip.Less(first) && !last.Less(ip) {
			return n, true
		}
	}
	return Network{}, false
}

// Contain says whether an address is in one of the networks, open or not.
func Contain(networks []Network, ip netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n Network) bool { return n.Prefix.Contains(ip) })
}

// bounds are the first and the last address of a network that can be given out. The very first one names the network,
// and the last one of IPv4 is for broadcasts.
func bounds(p netip.Prefix) (first, last netip.Addr) {
	last = p.Masked().Addr()
	raw := last.AsSlice()
	for i := p.Bits(); i < last.BitLen(); i++ {
		raw[i/8] |= 1 << (7 - i%8)
	}
	last, _ = netip.AddrFromSlice(raw)
	if last.Is4() {
		last = last.Prev()
	}
	return p.Masked().Addr().Next(), last
}

// maxSize bounds how many addresses of a network are counted.
const maxSize = 1 << 48

// size is how many addresses a network has to give.
func size(p netip.Prefix) uint64 {
	free := p.Addr().BitLen() - p.Bits()
	if free >= 48 {
		return maxSize
	}
	all, unusable := uint64(1)<<free, uint64(1)
	if p.Addr().Is4() {
		unusable = 2
	}
	if all <= unusable {
		return 0
	}
	return all - unusable
}

// A network's first addresses are given out last, so that they are there for those who ask for them: a sixteenth,
// within these bounds, and none of a small network. It is as in Kubernetes.
const (
	minReserved = 16
	maxReserved = 256
)

func reserved(size uint64) uint64 {
	if size <= minReserved {
		return 0
	}
	return min(max(size/16, minReserved), maxReserved)
}

// Free picks an address that is not taken, of an open network. chance gives a number below another.
func Free(networks []Network, taken func(netip.Addr) bool, chance func(below uint64) uint64) (netip.Addr, bool) {
	for _, early := range []bool{true, false} {
		for _, n := range networks {
			if !n.Open {
				continue
			}
			all := size(n.Prefix)
			from, to := reserved(all), all
			if !early {
				from, to = 0, from
			}
			if ip, ok := pick(n.Prefix, from, to, taken, chance); ok {
				return ip, true
			}
		}
	}
	return netip.Addr{}, false
}

// pick tries the addresses with these numbers, from one of them on.
func pick(p netip.Prefix, from, to uint64, taken func(netip.Addr) bool, chance func(uint64) uint64) (netip.Addr, bool) {
	if from >= to {
		return netip.Addr{}, false
	}
	first, _ := bounds(p)
	start := chance(to - from)
	for i := range to - from {
		if ip := plus(first, from+(start+i)%(to-from)); !taken(ip) {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

func plus(ip netip.Addr, n uint64) netip.Addr {
	raw := ip.AsSlice()
	for i := len(raw) - 1; i >= 0 && n > 0; i-- {
		n += uint64(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	out, _ := netip.AddrFromSlice(raw)
	return out
}

// Stranded is an address of the named ServiceCIDR that no other one has, which stays. Such a one holds up its deletion.
func Stranded(networks []Network, cidr string, addresses []netip.Addr) (netip.Addr, bool) {
	for _, ip := range addresses {
		own, others := false, false
		for _, n := range networks {
			if n.Prefix.Contains(ip) {
				own = own || n.CIDR == cidr
				others = others || n.CIDR != cidr && n.Open
			}
		}
		if own && !others {
			return ip, true
		}
	}
	return netip.Addr{}, false
}
