package agent

import (
	"net/netip"

	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/dns"
)

// dnsPort is where name servers answer.
const dnsPort = 53

// namesOwn says whether this node answers its pods' questions itself.
func (a *Agent) namesOwn() bool { return !a.cfg.ForeignDNS && len(a.cfg.ClusterDNS) > 0 }

// newNames prepares the node's name server; nil if somebody else answers.
func (a *Agent) newNames(s *sources.Sources, known *remember.Known) (*dns.Server, error) {
	if !a.namesOwn() {
		return nil, nil
	}
	var addresses []netip.Addr
	var listen []netip.AddrPort
	for _, text := range a.cfg.ClusterDNS {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		addresses, listen = append(addresses, ip), append(listen, netip.AddrPortFrom(ip, dnsPort))
	}
	return dns.New(dns.Config{
		Addresses: listen, Domain: a.cfg.ClusterDomain, ResolvConf: a.cfg.ResolvConf,
		Objects: dns.Objects{Services: s.Services, EndpointSlices: s.Slices, Namespaces: s.Namespaces},
		Known:   knownNames(known),
		Prepare: func() error { return network.HoldAddresses(addresses) },
		Serves:  func(client netip.Addr) bool { return network.IsHere(client, a.addresses.List(), a.cfg.ForeignNetwork) },
	})
}
