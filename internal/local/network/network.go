// Package network makes and removes a local cluster's bridge, namespaces, links and way out.
package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/process"
)

// NetnsDir is where named network namespaces are, also for the ip command.
const NetnsDir = "/run/netns"

// bridgeName is the bridge in a cluster's switch namespace.
const bridgeName = "br0"

// makeNetns makes a named network namespace.
func makeNetns(name string) error {
	return process.OnOwnThread(func() error {
		handle, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("make network namespace %s: %w", name, err)
		}
		return handle.Close()
	})
}

// RemoveNetns removes a named network namespace; none is fine.
func RemoveNetns(name string) error {
	err := removeNetnsFile(name)
	if errors.Is(err, unix.EBUSY) {
		err = process.OnOwnThread(func() error { return removeCoveredNetns(name) })
	}
	if err != nil {
		return fmt.Errorf("remove network namespace %s: %w", name, err)
	}
	return nil
}

func removeNetnsFile(name string) error {
	path := filepath.Join(NetnsDir, name)
	if err := unmountAll(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeCoveredNetns removes a namespace that is mounted below another mount,
// too. So it is once "ip netns add" has run: it mounts the folder on itself, with
// all that is in it. What is below cannot be reached without taking the user's
// namespaces away, except in a copy of all mounts that nobody sees; and a file
// that is no mount point there can be removed, which ends the mounts elsewhere.
func removeCoveredNetns(name string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("copy the mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the copied mounts private: %w", err)
	}
	if err := unmountAll(NetnsDir); err != nil {
		return err
	}
	return removeNetnsFile(name)
}

// unmountAll unmounts everything that is mounted on a path; nothing is fine.
func unmountAll(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			return nil
		case err != nil:
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

// NetnsNames lists the named network namespaces of a cluster.
func NetnsNames(p layout.Plan) ([]string, error) {
	entries, err := os.ReadDir(NetnsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() == p.SwitchNetns() || strings.HasPrefix(e.Name(), p.SwitchNetns()+"-") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// inNetns gives a function netlink access to a named network namespace.
func inNetns(name string, do func(h *netlink.Handle, ns netns.NsHandle) error) error {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", name, err)
	}
	defer h.Close()
	return do(h, ns)
}

// whole lists something of the kernel's until the list was not disturbed. The
// kernel says so when something changed meanwhile, such as another cluster's link.
func whole[T any](list func() ([]T, error)) ([]T, error) {
	for {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}

// Routes lists what the machine has routes to and addresses in.
func Routes() ([]netip.Prefix, error) {
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var taken []netip.Prefix
	add := func(n *net.IPNet) {
		if n == nil {
			return
		}
		if ip, ok := netip.AddrFromSlice(n.IP.To4()); ok {
			bits, _ := n.Mask.Size()
			taken = append(taken, netip.PrefixFrom(ip, bits).Masked())
		}
	}
	for _, r := range routes {
		add(r.Dst)
	}
	for _, a := range addresses {
		add(a.IPNet)
	}
	return taken, nil
}

// MakeSwitch makes the bridge in its namespace and the host's link to it.
func MakeSwitch(p layout.Plan) error {
	if err := makeNetns(p.SwitchNetns()); err != nil {
		return err
	}
	return inNetns(p.SwitchNetns(), func(inside *netlink.Handle, ns netns.NsHandle) error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
		if err := inside.LinkAdd(bridge); err != nil {
			return fmt.Errorf("make bridge: %w", err)
		}
		if err := inside.LinkSetUp(bridge); err != nil {
			return fmt.Errorf("set bridge up: %w", err)
		}
		host := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: p.HostLink()}, PeerName: "host", PeerNamespace: netlink.NsFd(int(ns)),
		}
		if err := netlink.LinkAdd(host); err != nil {
			return fmt.Errorf("make link %s: %w", p.HostLink(), err)
		}
		if err := plug(inside, "host"); err != nil {
			return err
		}
		return address(&netlink.Handle{}, p.HostLink(), p.Gateway, p.Subnet.Bits())
	})
}

// plug connects a link to the bridge of the namespace it is in.
func plug(h *netlink.Handle, name string) error {
	bridge, err := h.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("find bridge: %w", err)
	}
	port, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := h.LinkSetMaster(port, bridge); err != nil {
		return fmt.Errorf("plug %s into the bridge: %w", name, err)
	}
	if err := h.LinkSetUp(port); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

// address gives a link its address and sets it up.
func address(h *netlink.Handle, name string, ip netip.Addr, bits int) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, 32)}}
	if err := h.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, ip, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

// Connect makes a node's or server's network namespace and plugs it into the bridge.
func Connect(p layout.Plan, node layout.Node) error {
	if err := makeNetns(p.NodeNetns(node.Name)); err != nil {
		return err
	}
	return inNetns(p.NodeNetns(node.Name), func(inside *netlink.Handle, ns netns.NsHandle) error {
		port := portName(node)
		err := inNetns(p.SwitchNetns(), func(h *netlink.Handle, _ netns.NsHandle) error {
			veth := &netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns)),
			}
			if err := h.LinkAdd(veth); err != nil {
				return fmt.Errorf("make link of %s: %w", node.Name, err)
			}
			return plug(h, port)
		})
		if err != nil {
			return err
		}
		loopback, err := inside.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find loopback of %s: %w", node.Name, err)
		}
		if err := inside.LinkSetUp(loopback); err != nil {
			return fmt.Errorf("set loopback of %s up: %w", node.Name, err)
		}
		if err := address(inside, "eth0", node.IP, p.Subnet.Bits()); err != nil {
			return err
		}
		route := &netlink.Route{Gw: p.Gateway.AsSlice(), Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}}
		if err := inside.RouteAdd(route); err != nil {
			return fmt.Errorf("add default route of %s: %w", node.Name, err)
		}
		return nil
	})
}

// portName is the bridge's end of the link of a node or server.
func portName(node layout.Node) string { return strings.ReplaceAll(node.Name, "-", "") }

// Disconnect removes a node's network namespace and so both ends of its link.
func Disconnect(p layout.Plan, node layout.Node) error {
	err := inNetns(p.SwitchNetns(), func(h *netlink.Handle, _ netns.NsHandle) error {
		return RemoveLink(h, portName(node))
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, RemoveNetns(p.NodeNetns(node.Name)))
}

// RemoveLink removes a link; none is fine.
func RemoveLink(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := h.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove link %s: %w", name, err)
	}
	return nil
}

// HostLinks lists the host's ends of the links of all clusters.
func HostLinks() ([]string, error) {
	links, err := whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var names []string
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, layout.HostLinkPrefix) {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}
