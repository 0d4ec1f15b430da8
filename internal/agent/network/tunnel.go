package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The tunnels of a node are one VXLAN link. The far ends are entries: a neighbour
// (the first address of the other node's pod network, which is the next hop of the
// route there) with a hardware address, and where packets for that go. Nothing is
// learned from packets, and nothing is asked by broadcast.
const (
	tunnelLink = "everynode-vxlan"
	// tunnelID tells these tunnels from others on the same port.
	tunnelID = 0x657665
	// tunnelPort is the UDP port that is assigned to VXLAN.
	tunnelPort = 4789
)

// hardwareAddress is that of the tunnel's end at a hop, which is the first address
// of a pod network. All nodes derive it alike, so that it need not be told.
func hardwareAddress(hop netip.Addr) net.HardwareAddr {
	b := hop.As4()
	return net.HardwareAddr{0x02, 0x65, b[0], b[1], b[2], b[3]}
}

// hopAt is the reverse of hardwareAddress; invalid for other addresses.
func hopAt(a net.HardwareAddr) netip.Addr {
	if len(a) != ethernetAddress || a[0] != 0x02 || a[1] != 0x65 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(a[2:]))
}

// findTunnel returns the link, nil if there is none.
func findTunnel() (netlink.Link, error) {
	link, err := netlink.LinkByName(tunnelLink)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", tunnelLink, err)
	}
	return link, nil
}

func (machine) setTunnel(want tunnel) error {
	link, err := findTunnel()
	if err != nil {
		return err
	}
	if link != nil && !sameTunnel(link, want) {
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove link %s: %w", tunnelLink, err)
		}
		link = nil
	}
	if want == (tunnel{}) {
		return nil
	}
	if link == nil {
		link = &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: tunnelLink, HardwareAddr: hardwareAddress(want.address)},
			VxlanId:   tunnelID, SrcAddr: want.local.AsSlice(), Port: tunnelPort, Learning: false,
		}
		if err := netlink.LinkAdd(link); err != nil {
			return fmt.Errorf(
				"make link %s, which packets to nodes on other links need (kernel module vxlan): %w", tunnelLink, err,
			)
		}
	}
	if want.mtu > 0 && link.Attrs().MTU != want.mtu {
		if err := netlink.LinkSetMTU(link, want.mtu); err != nil {
			return fmt.Errorf("set the largest packet of %s to %d: %w", tunnelLink, want.mtu, err)
		}
	}
	if err := holdOnly(link, want.address); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", tunnelLink, err)
	}
	return nil
}

// sameTunnel says whether a link can become what is wanted without being made again.
func sameTunnel(link netlink.Link, want tunnel) bool {
	v, ok := link.(*netlink.Vxlan)
	if !ok || !want.local.IsValid() {
		return false
	}
	local, _ := netip.AddrFromSlice(v.SrcAddr.To4())
	return v.VxlanId == tunnelID && v.Port == tunnelPort && local == want.local && !v.Learning &&
		hopAt(v.HardwareAddr) == want.address
}

// holdOnly gives a link one address and no other.
func holdOnly(link netlink.Link, ip netip.Addr) error {
	have, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", tunnelLink, err)
	}
	for _, a := range have {
		if old, _ := netip.AddrFromSlice(a.IP.To4()); old != ip {
			if err := netlink.AddrDel(link, &a); err != nil {
				return fmt.Errorf("take the address %s from %s: %w", old, tunnelLink, err)
			}
		}
	}
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(ip, 32))}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", tunnelLink, ip, err)
	}
	return nil
}

// farEnds maps the next hops in the tunnel to the nodes behind them, invalid
// where an entry is missing or wrong.
func farEnds() (map[netip.Addr]netip.Addr, error) {
	link, err := findTunnel()
	if err != nil || link == nil {
		return nil, err
	}
	index := link.Attrs().Index
	neighbours, err := netlink.NeighList(index, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list neighbours in the tunnel: %w", err)
	}
	entries, err := netlink.NeighList(index, unix.AF_BRIDGE)
	if err != nil {
		return nil, fmt.Errorf("list ends of the tunnel: %w", err)
	}
	resolved := map[netip.Addr]bool{}
	ends := map[netip.Addr]netip.Addr{}
	for _, n := range neighbours {
		hop, ok := netip.AddrFromSlice(n.IP.To4())
		if ok && n.State&netlink.NUD_PERMANENT != 0 {
			resolved[hop] = hopAt(n.HardwareAddr) == hop
			ends[hop] = netip.Addr{}
		}
	}
	for _, e := range entries {
		if hop := hopAt(e.HardwareAddr); hop.IsValid() {
			node, _ := netip.AddrFromSlice(e.IP.To4())
			if !resolved[hop] {
				node = netip.Addr{}
			}
			ends[hop] = node
		}
	}
	return ends, nil
}

// addFarEnd makes the entries for a path and returns the link's index.
func addFarEnd(p path) (int, error) {
	link, err := findTunnel()
	if err != nil {
		return 0, err
	}
	if link == nil {
		return 0, fmt.Errorf("add a tunnel to %s: link %s is missing", p.via, tunnelLink)
	}
	index, hop := link.Attrs().Index, p.to.Addr()
	if err := netlink.NeighSet(neighbourEntry(index, hop)); err != nil {
		return 0, fmt.Errorf("add neighbour %s in the tunnel: %w", hop, err)
	}
	if err := netlink.NeighSet(forwardingEntry(index, hop, p.via)); err != nil {
		return 0, fmt.Errorf("add end %s of the tunnel: %w", p.via, err)
	}
	return index, nil
}

// neighbourEntry says which hardware address a hop has.
func neighbourEntry(index int, hop netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST,
		IP: hop.AsSlice(), HardwareAddr: hardwareAddress(hop),
	}
}

// forwardingEntry says to which node packets for that hardware address go. The
// unspecified address stands for whichever entry there is.
func forwardingEntry(index int, hop, node netip.Addr) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT | netlink.NUD_NOARP, Flags: netlink.NTF_SELF,
		HardwareAddr: hardwareAddress(hop), IP: node.AsSlice(),
	}
}

// removeFarEnd removes what addFarEnd made; nothing is fine.
func removeFarEnd(hop netip.Addr) error {
	link, err := findTunnel()
	if err != nil || link == nil {
		return err
	}
	index := link.Attrs().Index
	for _, entry := range []*netlink.Neigh{
		forwardingEntry(index, hop, netip.IPv4Unspecified()),
		neighbourEntry(index, hop),
	} {
		if err := netlink.NeighDel(entry); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove %s from the tunnel: %w", hop, err)
		}
	}
	return nil
}
