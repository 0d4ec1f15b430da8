package network

import (
	"errors"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// inNewNamespace runs a test in a network namespace of its own.
func inNewNamespace(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	needs.Root(t, "a network namespace needs root")
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("make a network namespace: %v", err)
			return
		}
		test(t)
	}()
	<-done
}

func TestMachineKeepsRoutesAndRules(t *testing.T) {
	inNewNamespace(t, func(t *testing.T) {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}
		if err := netlink.LinkAdd(link); err != nil {
			t.Errorf("make link: %v", err)
			return
		}
		addr, _ := netlink.ParseAddr("10.0.0.1/24")
		peer, _ := netlink.LinkByName("peer")
		for _, err := range []error{netlink.AddrAdd(link, addr), netlink.LinkSetUp(link), netlink.LinkSetUp(peer)} {
			if err != nil {
				t.Errorf("set link up: %v", err)
				return
			}
		}
		m, err := newMachine()
		if err != nil {
			t.Error(err)
			return
		}
		if err := m.addPath(path{to: netip.MustParsePrefix("10.244.9.0/24"), via: netip.MustParseAddr("10.0.0.255")}); !errors.Is(err, errNextHop) {
			t.Errorf("a path by a broadcast address: %v", err)
		}
		to, via := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParseAddr("10.0.0.2")
		for _, hop := range []netip.Addr{netip.MustParseAddr("10.0.0.3"), via} {
			if err := m.addPath(path{to: to, via: hop}); err != nil {
				t.Error(err)
			}
		}
		paths, err := m.paths()
		if err != nil || len(paths) != 1 || paths[to] != (path{to: to, via: via}) {
			t.Errorf("paths are %v (%v), want only the last one", paths, err)
		}
		for range 2 {
			if err := m.removePath(to); err != nil {
				t.Errorf("removing a path, also one that is not there: %v", err)
			}
		}
		base := rules{
			pods: netip.MustParsePrefix("10.244.0.0/24"), cluster: netip.MustParsePrefix("10.244.0.0/16"), nodes: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
			servers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:6443")},
		}
		other := netip.MustParseAddr("10.0.0.3")
		for _, rules := range []string{
			wholeRuleset(base), wholeRuleset(base),
			changedRuleset([]netip.Addr{via, other}, nil), changedRuleset(nil, []netip.Addr{other}),
		} {
			if err := m.applyRules(t.Context(), rules); err != nil {
				t.Errorf("%v, for:\n%s", err, rules)
			}
		}
		out, err := exec.Command("nft", "list", "table", "ip", table).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "10.0.0.2") || strings.Contains(string(out), "10.0.0.3") {
			t.Errorf("the table is (%v):\n%s", err, out)
		}
	})
}

func TestMachineHoldsAddresses(t *testing.T) {
	inNewNamespace(t, func(t *testing.T) {
		first, second := netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.96.0.11")
		for _, step := range [][]netip.Addr{{first}, {first}, {second}, nil} {
			if err := HoldAddresses(step); err != nil {
				t.Error(err)
				return
			}
			link, err := netlink.LinkByName("lo")
			if err != nil {
				t.Error(err)
				return
			}
			addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
			if err != nil {
				t.Error(err)
				return
			}
			var have []netip.Addr
			for _, a := range addresses {
				if ip, _ := netip.AddrFromSlice(a.IP.To4()); !ip.IsLoopback() {
					have = append(have, ip)
				}
			}
			if !slices.Equal(have, step) {
				t.Errorf("the machine has %v, want %v", have, step)
			}
		}
	})
}
