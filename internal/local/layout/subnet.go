package layout

import (
	"encoding/hex"
	"fmt"
	"net/netip"
)

// The ranges that the cluster itself uses for Services and pods.
var (
	serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	clusterCIDR = netip.MustParsePrefix("10.244.0.0/16")
)

// PickSubnet finds a /24 for the nodes of a cluster that overlaps with nothing
// the machine has a route to. The search starts at a place that depends on id,
// so that clusters that start at the same moment do not pick the same one, and
// one that starts again finds its own.
func PickSubnet(id string, taken []netip.Prefix) (netip.Prefix, error) {
	sum, err := hex.DecodeString(id)
	if err != nil || len(sum) < 2 {
		return netip.Prefix{}, fmt.Errorf("cluster id %q is not hexadecimal", id)
	}
	start := int(sum[0])<<8 | int(sum[1])
	for i := range 1 << 16 {
		n := (start + i) & 0xffff
		candidate := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 0}), 24)
		if Free(candidate, taken) {
			return candidate, nil
		}
	}
	return netip.Prefix{},
		fmt.Errorf("every subnet of 10.0.0.0/8 overlaps with a route of this machine; free one (see: ip route)")
}

// Free reports whether a subnet overlaps with none that is taken. A default
// route leads everywhere and takes nothing.
func Free(candidate netip.Prefix, taken []netip.Prefix) bool {
	if candidate.Overlaps(serviceCIDR) || candidate.Overlaps(clusterCIDR) {
		return false
	}
	for _, t := range taken {
		if t.Bits() > 0 && t.Overlaps(candidate) {
			return false
		}
	}
	return true
}
