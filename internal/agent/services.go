package agent

import (
	"net/netip"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/dns"
	"github.com/everynode/everynode/internal/proxy"
)

// knownFile, in the data folder, has what the node knows of Services.
const knownFile = "services.jsonl"

// newKeeper prepares what keeps the node's knowledge of Services for its next start, and tells what it kept in an
// earlier run.
func (a *Agent) newKeeper(logger klog.Logger, s *sources.Sources) (*remember.Keeper, *remember.Known) {
	keeper, known, err := remember.NewKeeper(filepath.Join(a.cfg.DataDir, knownFile), a.cfg.NodeName, remember.Sources{
		Nodes: s.Node, Services: s.Services, EndpointSlices: s.Slices, Namespaces: s.Namespaces,
	}, a.clk)
	if err != nil {
		logger.Error(err, "Names of the cluster are not found before the API server answers")
	}
	return keeper, known
}

// newServices prepares the node's service proxy; nil if Services are somebody else's.
func (a *Agent) newServices(s *sources.Sources, known *remember.Known) (*proxy.Proxy, error) {
	if a.cfg.ForeignServices {
		return nil, nil
	}
	config := proxy.Config{NodeName: a.cfg.NodeName, Services: s.Services, EndpointSlices: s.Slices, Nodes: s.Node,
		Clock: a.clk, ServiceNetwork: a.cfg.ServiceCIDR,
		HealthAddress: a.cfg.ProxyHealthAddress, MetricsAddress: a.cfg.ProxyMetricsAddress}
	if known != nil {
		config.Known = &proxy.Known{Node: known.Node, Services: known.Services, EndpointSlices: known.EndpointSlices}
	}
	return proxy.New(config)
}

// knownNames is what the name server needs of what was known.
func knownNames(known *remember.Known) *dns.Known {
	if known == nil {
		return nil
	}
	return &dns.Known{Services: known.Services, EndpointSlices: known.EndpointSlices, Namespaces: known.Namespaces}
}

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
