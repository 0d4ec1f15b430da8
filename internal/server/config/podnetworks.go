package config

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/everynode/everynode/internal/node"
)

// The networks that pods get their addresses from unless somebody says otherwise.
var (
	realPods      = netip.MustParsePrefix("10.244.0.0/16")
	simulatedPods = netip.MustParsePrefix("10.128.0.0/9")
)

// A node's part: 254 pods; or 126, still more than the 110 that a node takes by default.
const usualNodeBits, smallNodeBits = 24, 25

// podNetworks is the network of all pods and how it is divided among nodes. The error
// says what is wrong with what was asked for.
func podNetworks(o *Options, services *net.IPNet) (node.PodNetworks, error) {
	out := node.PodNetworks{Cluster: realPods, NodeBits: o.NodeMaskSize}
	if o.SimulatedNodes > 0 {
		out.Cluster = simulatedPods
	}
	if o.ClusterCIDR != "" {
		network, err := netip.ParsePrefix(o.ClusterCIDR)
		if err != nil || !network.Addr().Is4() {
			return out, fmt.Errorf("the cluster CIDR %q is not a network such as %s", o.ClusterCIDR, realPods)
		}
		out.Cluster = network.Masked()
	}
	if other := prefixOf(services); out.Cluster.Overlaps(other) {
		return out, fmt.Errorf("pods (%s) and Services (%s) must not share addresses; "+
			"set --cluster-cidr or --service-cidr to another network", out.Cluster, other)
	}
	if out.NodeBits == 0 {
		out.NodeBits = usualNodeBits
		if o.SimulatedNodes > rooms(out) {
			out.NodeBits = smallNodeBits
		}
	}
	// A part has its own address, the node's, that of broadcasts, and one pod's.
	if out.NodeBits < out.Cluster.Bits() || out.NodeBits > 30 {
		return out, fmt.Errorf("--node-cidr-mask-size %d: a node's part of the pod network %s is from /%d to /30",
			out.NodeBits, out.Cluster, out.Cluster.Bits())
	}
	if has := rooms(out); o.SimulatedNodes > has {
		return out, fmt.Errorf("%d simulated nodes need as many pod networks, and %s has %d of /%d; "+
			"set --cluster-cidr to a larger network, or --node-cidr-mask-size to a smaller part",
			o.SimulatedNodes, out.Cluster, has, out.NodeBits)
	}
	return out, nil
}

// rooms is how many nodes there is room for.
func rooms(p node.PodNetworks) int {
	if p.NodeBits < p.Cluster.Bits() {
		return 0
	}
	return 1 << (p.NodeBits - p.Cluster.Bits())
}

func prefixOf(n *net.IPNet) netip.Prefix {
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}
