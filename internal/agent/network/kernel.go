package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeProtocol marks our routes among those of others.
const routeProtocol netlink.RouteProtocol = 0x45

// kernel is what this package changes on the machine.
type kernel interface {
	// listRoutes returns our routes.
	listRoutes() (map[netip.Prefix]netip.Addr, error)
	addRoute(route) error
	removeRoute(netip.Prefix) error
	// applyRules runs commands of the packet filter, all or none.
	applyRules(ctx context.Context, commands string) error
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

func (machine) listRoutes() (map[netip.Prefix]netip.Addr, error) {
	filter := &netlink.Route{Protocol: routeProtocol}
	list, err := netlink.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	routes := make(map[netip.Prefix]netip.Addr, len(list))
	for _, r := range list {
		if r.Dst == nil {
			continue
		}
		to, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		via, _ := netip.AddrFromSlice(r.Gw.To4())
		if bits, _ := r.Dst.Mask.Size(); ok {
			routes[netip.PrefixFrom(to, bits)] = via
		}
	}
	return routes, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (machine) addRoute(r route) error {
	err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(r.to), Gw: r.via.AsSlice(), Protocol: routeProtocol})
	if err != nil {
		return fmt.Errorf("add route to %s via %s: %w", r.to, r.via, err)
	}
	return nil
}

func (machine) removeRoute(to netip.Prefix) error {
	err := netlink.RouteDel(&netlink.Route{Dst: ipNet(to), Protocol: routeProtocol})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route to %s: %w", to, err)
	}
	return nil
}

func (m machine) applyRules(ctx context.Context, commands string) error {
	cmd := exec.CommandContext(ctx, m.nft, "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply packet filter rules: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// writeConf replaces the CNI configuration so that a runtime that reads the
// folder at the same moment finds the old or the new one, whole. The temporary
// name has an ending that runtimes do not read.
func writeConf(dir string, content []byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make CNI configuration folder: %w", err)
	}
	path := filepath.Join(dir, confName)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(content) {
		return nil
	}
	f, err := os.CreateTemp(dir, "."+confName+".*.tmp")
	if err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write CNI configuration: %w", err)
	}
	return nil
}
