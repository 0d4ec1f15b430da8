package network

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addressLink is the link that holds addresses at which every node answers by
// itself. Nothing is behind it.
const addressLink = "everynode-addr"

// HoldAddresses gives the machine addresses that are on none of its networks. It
// may be called again, and changes nothing then.
func HoldAddresses(ips []netip.Addr) error {
	link, err := netlink.LinkByName(addressLink)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		link = &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: addressLink}}
		if err = netlink.LinkAdd(link); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("make link %s: %w", addressLink, err)
		}
		link, err = netlink.LinkByName(addressLink)
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", addressLink, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", addressLink, err)
	}
	for _, ip := range ips {
		address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(ip, ip.BitLen()))}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("give the machine the address %s: %w", ip, err)
		}
	}
	return nil
}
