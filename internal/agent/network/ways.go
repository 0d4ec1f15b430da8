package network

import (
	"fmt"
	"net/netip"
	"slices"
)

// Mode says how packets get to the pods of other nodes.
type Mode string

// The modes.
const (
	// Auto is by host gateway to nodes on a link of this one, and through VXLAN to others.
	Auto Mode = "auto"
	// HostGateway makes the other nodes next hops of routes. All must be on one link.
	HostGateway Mode = "host-gw"
	// VXLAN sends everything through tunnels, also on one link: where the link drops
	// what does not carry the addresses of nodes.
	VXLAN Mode = "vxlan"
)

// ParseMode reads a mode.
func ParseMode(text string) (Mode, error) {
	if m := Mode(text); slices.Contains([]Mode{Auto, HostGateway, VXLAN}, m) {
		return m, nil
	}
	return "", fmt.Errorf("unknown pod network %q; use %s, %s, %s or none", text, Auto, HostGateway, VXLAN)
}

// way is a route of the machine, as far as it tells how nodes are reached.
type way struct {
	to netip.Prefix
	// direct means that what is there is on a link of this machine, to which packets
	// for others can be handed.
	direct bool
	// mtu is the largest packet on that link, in bytes.
	mtu int
}

// ways are the routes of the machine that are not this package's.
type ways []way

// best is the way to an address: the one to the smallest network with it.
func (w ways) best(ip netip.Addr) (best way) {
	for _, one := range w {
		if one.to.Contains(ip) && (!best.to.IsValid() || one.to.Bits() > best.to.Bits()) {
			best = one
		}
	}
	return best
}

func (w ways) direct(ip netip.Addr) bool { return w.best(ip).direct }

// mtu is that of the link on which an address of this machine is; 0 if unknown.
func (w ways) mtu(own netip.Addr) int { return w.best(own).mtu }

func (w ways) equal(other ways) bool { return slices.Equal(w, other) }
