package network

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// facts is what matters here about a node. Either part may be unknown yet.
type facts struct {
	pods netip.Prefix
	ip   netip.Addr
}

// factsOf reads a node; IPv4 only.
func factsOf(node *corev1.Node) facts {
	var f facts
	if prefix, err := netip.ParsePrefix(node.Spec.PodCIDR); err == nil && prefix.Addr().Is4() {
		f.pods = prefix.Masked()
	}
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil && ip.Is4() {
			f.ip = ip
			break
		}
	}
	return f
}

// route leads to the pods of another node.
type route struct {
	to  netip.Prefix
	via netip.Addr
}

// delta is what a change of one node means for the kernel.
type delta struct {
	routes  []route        // to add or replace
	gone    []netip.Prefix // routes to remove
	joined  []netip.Prefix // networks that now belong to the cluster
	parted  []netip.Prefix // networks that no longer do
	ownPods netip.Prefix   // set when the node itself got its pod network
}

func (d delta) empty() bool {
	return len(d.routes)+len(d.gone)+len(d.joined)+len(d.parted) == 0 && !d.ownPods.IsValid()
}

// owned is a network, the nodes that claim it, and where it is.
type owned struct {
	owner string
	via   netip.Addr
}

// peers is what all nodes say, and what follows from it. When two nodes claim
// one network (a node was deleted and another got its network, and the news
// come in the other order) the later claim counts.
type peers struct {
	self     string
	nodes    map[string]facts
	networks map[netip.Prefix]owned // pod networks, and node addresses as /32
}

func newPeers(self string) *peers {
	return &peers{self: self, nodes: map[string]facts{}, networks: map[netip.Prefix]owned{}}
}

// update takes what a node says now; zero facts for a node that is gone.
func (p *peers) update(name string, now facts) delta {
	before := p.nodes[name]
	var d delta
	if before == now {
		return d
	}
	if now == (facts{}) {
		delete(p.nodes, name)
	} else {
		p.nodes[name] = now
	}
	beforeNetworks, nowNetworks := p.claims(name, before), p.claims(name, now)
	for network := range beforeNetworks {
		if _, still := nowNetworks[network]; !still && p.networks[network].owner == name {
			delete(p.networks, network)
			d.parted = append(d.parted, network)
			if beforeNetworks[network].IsValid() {
				d.gone = append(d.gone, network)
			}
		}
	}
	for network, via := range nowNetworks {
		was, known := p.networks[network]
		p.networks[network] = owned{owner: name, via: via}
		if !known {
			d.joined = append(d.joined, network)
		}
		switch {
		case via.IsValid() && was.via != via:
			d.routes = append(d.routes, route{to: network, via: via})
		case !via.IsValid() && was.via.IsValid():
			d.gone = append(d.gone, network)
		}
	}
	if name == p.self && now.pods != before.pods {
		d.ownPods = now.pods
	}
	return d
}

// claims maps the networks of a node to the next hop of the route that they
// need, invalid for none.
func (p *peers) claims(name string, f facts) map[netip.Prefix]netip.Addr {
	claims := map[netip.Prefix]netip.Addr{}
	if f.pods.IsValid() {
		via := f.ip
		if name == p.self {
			via = netip.Addr{}
		}
		claims[f.pods] = via
	}
	if f.ip.IsValid() {
		claims[netip.PrefixFrom(f.ip, 32)] = netip.Addr{}
	}
	return claims
}

// routes is every route that there should be.
func (p *peers) routes() map[netip.Prefix]netip.Addr {
	all := map[netip.Prefix]netip.Addr{}
	for network, o := range p.networks {
		if o.via.IsValid() {
			all[network] = o.via
		}
	}
	return all
}

// repair compares the routes that there are with those that there should be.
func (p *peers) repair(have map[netip.Prefix]netip.Addr) delta {
	var d delta
	want := p.routes()
	for network, via := range want {
		if have[network] != via {
			d.routes = append(d.routes, route{to: network, via: via})
		}
	}
	for network := range have {
		if _, wanted := want[network]; !wanted {
			d.gone = append(d.gone, network)
		}
	}
	return d
}
