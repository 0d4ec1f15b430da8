package network

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// IsHere reports whether an address is one of this machine or of a pod on it, and not of a
// neighbour on a link: by where the machine would send packets for it. With a foreign
// network nobody knows on which links pods are; then it is any but those that have the
// node's own addresses.
func IsHere(ip netip.Addr, own []net.IP, foreign bool) bool {
	routes, err := netlink.RouteGet(ip.AsSlice())
	if err != nil || len(routes) == 0 {
		return false
	}
	route := routes[0]
	if route.Type == unix.RTN_LOCAL {
		return true
	}
	link, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil || route.Via != nil || route.Gw != nil && !isOwn(route.Gw) {
		return false
	}
	if !foreign {
		return link.Attrs().Name == bridge
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return false
	}
	for _, a := range addresses {
		for _, ip := range own {
			if a.IP.Equal(ip) {
				return false
			}
		}
	}
	return true
}

// isOwn reports whether an address is the machine's own. As a gateway such a one leads nowhere else: Cilium routes the
// pods of a node by way of its own address, which the kernel only leaves out if it was there before the route.
func isOwn(ip net.IP) bool {
	routes, err := netlink.RouteGet(ip)
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}
