package network

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Addresses at which every node answers by itself are on the loopback interface,
// which every kernel has. The label says whose they are.
const (
	addressLink  = "lo"
	addressLabel = "lo:everynode"
)

// HoldAddresses gives the machine these addresses, which are on none of its
// networks, and takes back others that it was given this way before. It may be
// called again, and changes nothing then.
func HoldAddresses(ips []netip.Addr) error {
	link, err := netlink.LinkByName(addressLink)
	if err != nil {
		return fmt.Errorf("find link %s: %w", addressLink, err)
	}
	have, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", addressLink, err)
	}
	for _, a := range have {
		ip, _ := netip.AddrFromSlice(a.IP)
		if a.Label == addressLabel && !slices.Contains(ips, ip.Unmap()) {
			if err := netlink.AddrDel(link, &a); err != nil {
				return fmt.Errorf("take the address %s from the machine: %w", ip, err)
			}
		}
	}
	for _, ip := range ips {
		// With this scope it is never chosen as the sender of what goes elsewhere.
		address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(ip, ip.BitLen())), Scope: int(netlink.SCOPE_HOST)}
		if ip.Is4() { // Others have no labels.
			address.Label = addressLabel
		}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("give the machine the address %s: %w", ip, err)
		}
	}
	return nil
}
