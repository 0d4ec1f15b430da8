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

// path leads to the pods of another node, whose address is via: as the next hop
// of a route, or as the other end of a tunnel.
type path struct {
	to     netip.Prefix
	via    netip.Addr
	tunnel bool
}

// delta is what a change means for the kernel.
type delta struct {
	paths   []path         // to add or replace
	gone    []netip.Prefix // networks whose paths to remove
	joined  []netip.Prefix // networks that now belong to the cluster
	parted  []netip.Prefix // networks that no longer do
	ownPods netip.Prefix   // set when the node itself got its pod network
}

func (d delta) empty() bool {
	return len(d.paths)+len(d.gone)+len(d.joined)+len(d.parted) == 0 && !d.ownPods.IsValid()
}

// owned is a network, the node that claims it, that node's address, and the path
// there, which is zero for none.
type owned struct {
	owner string
	via   netip.Addr
	path  path
}

// peers is what all nodes say, and what follows from it. When two nodes claim
// one network (a node was deleted and another got its network, and the news
// come in the other order) the later claim counts.
type peers struct {
	self     string
	mode     Mode
	ways     ways
	nodes    map[string]facts
	networks map[netip.Prefix]owned // pod networks, and node addresses as /32
	tunnels  int                    // how many networks have a tunnel as their path
}

func newPeers(self string, mode Mode) *peers {
	return &peers{self: self, mode: mode, nodes: map[string]facts{}, networks: map[netip.Prefix]owned{}}
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
			d.parted = append(d.parted, network)
			p.put(&d, network, owned{})
		}
	}
	for network, via := range nowNetworks {
		if _, known := p.networks[network]; !known {
			d.joined = append(d.joined, network)
		}
		p.put(&d, network, owned{owner: name, via: via, path: p.pathTo(network, via)})
	}
	if name == p.self {
		if now.pods != before.pods {
			d.ownPods = now.pods
		}
		p.choose(&d) // A tunnel needs to know where this end is.
	}
	return d
}

// put sets what is known of a network, nothing if nobody owns it, and notes what
// that means for its path.
func (p *peers) put(d *delta, network netip.Prefix, now owned) {
	before := p.networks[network].path
	switch {
	case before == now.path:
	case now.path == (path{}):
		d.gone = append(d.gone, network)
	default:
		d.paths = append(d.paths, now.path)
	}
	if before.tunnel {
		p.tunnels--
	}
	if now.path.tunnel {
		p.tunnels++
	}
	if now.owner == "" {
		delete(p.networks, network)
	} else {
		p.networks[network] = now
	}
}

// claims maps the networks of a node to that node's address where a path must
// lead there, invalid for none.
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

// pathTo chooses the path to a network behind a node; zero for none.
func (p *peers) pathTo(network netip.Prefix, via netip.Addr) path {
	if !via.IsValid() {
		return path{}
	}
	if p.mode != VXLAN && p.ways.direct(via) {
		return path{to: network, via: via}
	}
	if p.mode == HostGateway || !p.tunnelled() {
		return path{} // The kernel would refuse it; unreachable names it.
	}
	return path{to: network, via: via, tunnel: true}
}

// tunnelled says whether this node knows where its end of a tunnel is.
func (p *peers) tunnelled() bool {
	me := p.nodes[p.self]
	return me.pods.IsValid() && me.ip.IsValid()
}

// rewire takes the machine's own ways, and chooses all paths anew if they changed.
func (p *peers) rewire(now ways) delta {
	var d delta
	if p.ways.equal(now) {
		return d
	}
	p.ways = now
	p.choose(&d)
	return d
}

// choose chooses all paths anew.
func (p *peers) choose(d *delta) {
	for network, o := range p.networks {
		o.path = p.pathTo(network, o.via)
		p.put(d, network, o)
	}
}

// unreachable lists the nodes to whose pods there is no path in this mode.
func (p *peers) unreachable() (names []string) {
	if p.mode != HostGateway {
		return nil
	}
	for _, o := range p.networks {
		if o.via.IsValid() && o.path == (path{}) {
			names = append(names, o.owner)
		}
	}
	return names
}

// repair compares the paths that there are with those that there should be.
func (p *peers) repair(have map[netip.Prefix]path) delta {
	var d delta
	for network, o := range p.networks {
		if o.path != (path{}) && have[network] != o.path {
			d.paths = append(d.paths, o.path)
		}
	}
	for network := range have {
		if p.networks[network].path == (path{}) {
			d.gone = append(d.gone, network)
		}
	}
	return d
}

// tunnel is this node's end of the tunnels to others; zero if there is none.
type tunnel struct {
	// local is the node's address, between which and the other nodes' the packets go.
	local netip.Addr
	// address is that of the end itself: the first of the node's pod network, which no
	// pod gets.
	address netip.Addr
	mtu     int
}

// tunnelOverhead is what a packet grows by in a tunnel: outer IPv4, UDP, VXLAN
// and inner Ethernet headers, in bytes.
const tunnelOverhead = 50

// tunnel is the end that this node needs.
func (p *peers) tunnel() tunnel {
	if !p.tunnelled() || p.tunnels == 0 && p.mode != VXLAN {
		return tunnel{}
	}
	me := p.nodes[p.self]
	return tunnel{local: me.ip, address: me.pods.Addr(), mtu: max(p.ways.mtu(me.ip)-tunnelOverhead, 0)}
}

// mtu is the largest packet, in bytes, that a pod may send so that it reaches all
// other pods whole; 0 if that is not known.
func (p *peers) mtu() int {
	if t := p.tunnel(); t.mtu > 0 {
		return t.mtu
	}
	return p.ways.mtu(p.nodes[p.self].ip)
}
