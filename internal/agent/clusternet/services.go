package clusternet

import (
	"net/netip"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/network/dns"
	"github.com/everynode/everynode/internal/network/proxy"
)

// knownFile, in the data folder, has what the node knows of Services.
const knownFile = "services.jsonl"

// NewKeeper prepares what keeps the node's knowledge of Services for its next start, and tells what it kept in an
// earlier run.
func (c Config) NewKeeper(logger klog.Logger) (*remember.Keeper, *remember.Known) {
	keeper, known, err := remember.NewKeeper(filepath.Join(c.DataDir, knownFile), c.NodeName, remember.Sources{
		Nodes: c.Sources.Node, Services: c.Sources.Services, EndpointSlices: c.Sources.Slices,
		Namespaces: c.Sources.Namespaces,
	}, c.Clock)
	if err != nil {
		logger.Error(err, "Names of the cluster are not found before the API server answers")
	}
	return keeper, known
}

// NewServices prepares the node's service proxy; nil if Services are somebody else's.
func (c Config) NewServices(known *remember.Known) (*proxy.Proxy, error) {
	if c.ForeignServices {
		return nil, nil
	}
	settings := proxy.Config{
		NodeName:       c.NodeName,
		Services:       c.Sources.Services,
		EndpointSlices: c.Sources.Slices,
		Nodes:          c.Sources.Node,
		Clock:          c.Clock,
		ServiceNetwork: c.ServiceCIDR,
		HealthAddress:  c.ProxyHealthAddress,
		MetricsAddress: c.ProxyMetricsAddress,
	}
	if known != nil {
		settings.Known = &proxy.Known{Node: known.Node, Services: known.Services, EndpointSlices: known.EndpointSlices}
	}
	return proxy.New(settings)
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
func namesOwn(c *config.Config) bool { return !c.ForeignDNS && len(c.ClusterDNS) > 0 }

// NewNames prepares the node's name server; nil if somebody else answers.
func (c Config) NewNames(known *remember.Known) (*dns.Server, error) {
	if !namesOwn(&c.Config) {
		return nil, nil
	}
	var addresses []netip.Addr
	var listen []netip.AddrPort
	for _, text := range c.ClusterDNS {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		addresses, listen = append(addresses, ip), append(listen, netip.AddrPortFrom(ip, dnsPort))
	}
	return dns.New(dns.Config{
		Addresses: listen, Domain: c.ClusterDomain, ResolvConf: c.ResolvConf,
		Objects: dns.Objects{
			Services:       c.Sources.Services,
			EndpointSlices: c.Sources.Slices,
			Namespaces:     c.Sources.Namespaces,
		},
		Known:   knownNames(known),
		Prepare: func() error { return network.HoldAddresses(addresses) },
		Serves:  func(client netip.Addr) bool { return network.IsHere(client, c.Addresses.List(), c.ForeignNetwork) },
	})
}
