package nftables

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/network/proxy/ruleset"
)

// Forget makes the kernel forget where UDP to these addresses went, unless that is
// where it should go. It returns how many flows it forgot.
func (f *Filter) Forget(flows []ruleset.Flow) (uint, error) {
	if len(flows) == 0 {
		return 0, nil
	}
	own, err := ownAddresses()
	if err != nil {
		return 0, err
	}
	n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, &stale{flows: flows, own: own})
	if err != nil {
		return n, fmt.Errorf("forget UDP flows of services: %w", err)
	}
	return n, nil
}

func ownAddresses() (map[netip.Addr]bool, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP.To4()); ok {
				own[ip] = true
			}
		}
	}
	return own, nil
}

// stale matches noted flows that lead where they should not.
type stale struct {
	flows []ruleset.Flow
	own   map[netip.Addr]bool
}

var _ netlink.CustomConntrackFilter = (*stale)(nil)

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s *stale) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, ok1 := netip.AddrFromSlice(flow.Forward.DstIP.To4())
	answers, ok2 := netip.AddrFromSlice(flow.Reverse.SrcIP.To4())
	if !ok1 || !ok2 {
		return false
	}
	for _, f := range s.flows {
		here := f.To == to || !f.To.IsValid() && s.own[to]
		if here && f.Port == flow.Forward.DstPort {
			return !slices.Contains(f.Endpoints, netip.AddrPortFrom(answers, flow.Reverse.SrcPort))
		}
	}
	return false
}
