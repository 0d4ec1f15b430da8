package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/network/packetfilter"
)

// routeProtocol marks our routes among those of others.
const routeProtocol netlink.RouteProtocol = 0x45

// ethernetAddress is the length of a link's address, in bytes, if the link has
// next hops: a tunnel or a point-to-point link has none.
const ethernetAddress = 6

// errNextHop means that no machine can be reached at the address that a node gives out:
// it is one of this machine, or the broadcast address of a link.
var errNextHop = errors.New("no packet can be handed to that address")

// kernel is what this package changes on the machine.
type kernel interface {
	// ways returns the machine's own routes.
	ways() (ways, error)
	// paths returns ours; one that is not whole differs from what was added.
	paths() (map[netip.Prefix]path, error)
	addPath(path) error
	removePath(netip.Prefix) error
	// setTunnel makes this node's end of tunnels what it should be; zero removes it.
	setTunnel(tunnel) error
	// applyRules runs commands of the packet filter, all or none.
	applyRules(ctx context.Context, commands string) error
	// counts returns how much there is of our table, zero where there is none.
	counts() (counts, error)
	// follow calls changed after every change of routes and links, until ctx ends.
	follow(ctx context.Context, changed func()) error
}

// machine is the kernel that this process runs on, in its network namespace.
type machine struct{ nft string }

func newMachine() (machine, error) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		return machine{}, fmt.Errorf("the nodes' network needs the nft command (package nftables): %w", err)
	}
	return machine{nft: nft}, nil
}

func (machine) ways() (ways, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	byIndex := make(map[int]*netlink.LinkAttrs, len(links))
	for _, l := range links {
		byIndex[l.Attrs().Index] = l.Attrs()
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var out ways
	for _, r := range routes {
		link := byIndex[r.LinkIndex]
		if r.Protocol == routeProtocol || r.Type != unix.RTN_UNICAST || link == nil || link.Name == bridge {
			continue
		}
		direct := r.Gw == nil && r.Via == nil && len(r.MultiPath) == 0 && len(link.HardwareAddr) == ethernetAddress &&
			link.RawFlags&unix.IFF_NOARP == 0
		out = append(out, way{to: prefixOf(r.Dst), direct: direct, mtu: link.MTU})
	}
	// Routes come in no promised order, and are compared.
	slices.SortFunc(out, func(a, b way) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return out, nil
}

// prefixOf reads a destination; none is everything.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	ip, _ := netip.AddrFromSlice(n.IP.To4())
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(ip, bits)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (machine) paths() (map[netip.Prefix]path, error) {
	filter := &netlink.Route{Protocol: routeProtocol}
	list, err := netlink.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	ends, err := farEnds()
	if err != nil {
		return nil, err
	}
	paths := make(map[netip.Prefix]path, len(list))
	for _, r := range list {
		if r.Dst == nil {
			continue
		}
		p := path{to: prefixOf(r.Dst)}
		p.via, _ = netip.AddrFromSlice(r.Gw.To4())
		if end, ok := ends[p.via]; ok && r.Flags&int(netlink.FLAG_ONLINK) != 0 {
			p.via, p.tunnel = end, true
			delete(ends, p.to.Addr())
		}
		paths[p.to] = p
	}
	// What is left leads nowhere: a path of one address, which is to be removed.
	for hop := range ends {
		paths[netip.PrefixFrom(hop, hop.BitLen())] = path{}
	}
	return paths, nil
}

func (machine) addPath(p path) error {
	route := &netlink.Route{Dst: ipNet(p.to), Gw: p.via.AsSlice(), Protocol: routeProtocol}
	if p.tunnel {
		index, err := addFarEnd(p)
		if err != nil {
			return err
		}
		route.Gw, route.LinkIndex = p.to.Addr().AsSlice(), index
		route.SetFlag(netlink.FLAG_ONLINK)
	}
	if err := netlink.RouteReplace(route); err != nil {
		for _, bad := range []error{unix.EINVAL, unix.ENETUNREACH, unix.EHOSTUNREACH} {
			if errors.Is(err, bad) {
				err = errors.Join(errNextHop, err)
			}
		}
		return fmt.Errorf("add route to %s via %s: %w", p.to, p.via, err)
	}
	if p.tunnel {
		return nil
	}
	return removeFarEnd(p.to.Addr())
}

func (machine) removePath(to netip.Prefix) error {
	err := netlink.RouteDel(&netlink.Route{Dst: ipNet(to), Protocol: routeProtocol})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route to %s: %w", to, err)
	}
	return removeFarEnd(to.Addr())
}

func (m machine) applyRules(ctx context.Context, commands string) error {
	cmd := exec.CommandContext(ctx, m.nft, "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply packet filter rules: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (machine) counts() (counts, error) {
	chains, err := packetfilter.Rules(table)
	if err != nil || len(chains) == 0 {
		return counts{}, err
	}
	elements, err := packetfilter.Elements(table, nodesSet)
	return counts{rules: chains, nodes: elements}, err
}

func (machine) follow(ctx context.Context, changed func()) error {
	events := make(chan netlink.RouteUpdate)
	err := netlink.RouteSubscribeWithOptions(events, ctx.Done(), netlink.RouteSubscribeOptions{
		// What was missed is made up for by the comparison that comes now and then.
		ErrorCallback: func(error) {},
	})
	if err != nil {
		return fmt.Errorf("follow the machine's routes: %w", err)
	}
	for e := range events {
		// Routes that we add come back too, and each new pod brings some of IPv6.
		if e.Family == netlink.FAMILY_V4 && e.Table == unix.RT_TABLE_MAIN &&
			(e.Protocol != routeProtocol || e.Type == unix.RTM_DELROUTE) {
			changed()
		}
	}
	return nil
}
