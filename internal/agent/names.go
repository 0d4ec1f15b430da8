package agent

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"

	mdns "github.com/miekg/dns"

	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/dns"
)

// dnsPort is where name servers answer.
const dnsPort = 53

// namesOwn says whether this node answers its pods' questions itself.
func (a *Agent) namesOwn() bool { return !a.cfg.ForeignDNS && len(a.cfg.ClusterDNS) > 0 }

// newNames prepares the node's name server; nil if somebody else answers.
func (a *Agent) newNames(s *sources, known *remember.Known) (*dns.Server, error) {
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
		Objects: dns.Objects{Services: s.services, EndpointSlices: s.slices, Namespaces: s.namespaces},
		Known:   knownNames(known),
		Prepare: func() error { return network.HoldAddresses(addresses) },
		Serves:  func(client netip.Addr) bool { return network.IsHere(client, a.addresses.List(), a.cfg.ForeignNetwork) },
	})
}

// findResolvConf returns the resolver file below root that also helps pods: the name server that systemd-resolved runs
// on the machine's loopback interface is out of their reach.
func findResolvConf(root string) string {
	path := filepath.Join(root, "etc/resolv.conf")
	resolved := filepath.Join(root, "run/systemd/resolve/resolv.conf")
	if _, err := os.Stat(resolved); err != nil || !onlyLoopback(path) {
		return path
	}
	return resolved
}

// onlyLoopback says whether all name servers of a resolver file, at least one, are on the loopback interface.
func onlyLoopback(path string) bool {
	content, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	config, err := mdns.ClientConfigFromReader(bytes.NewReader(content))
	if err != nil || len(config.Servers) == 0 {
		return false
	}
	for _, text := range config.Servers {
		if ip, err := netip.ParseAddr(text); err != nil || !ip.IsLoopback() {
			return false
		}
	}
	return true
}
