package network

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/node/peer"
)

// facts is what matters here of what a node says. Either part may be unknown yet.
type facts struct {
	age  node.Age
	pods string
	ip   netip.Addr
}

// factsOf reads what is said of a node; IPv4 only.
func factsOf(n *peer.Node) facts {
	f := facts{age: node.AgeOf(n)}
	if len(n.PodCIDRs) > 0 {
		f.pods = n.PodCIDRs[0]
	}
	for _, a := range n.Addresses {
		if ip, err := netip.ParseAddr(a); err == nil && ip.Is4() {
			f.ip = ip
			break
		}
	}
	return f
}

// member is a node with what is left of its facts by the bounds.
type member struct {
	said facts
	pods netip.Prefix
	ip   netip.Addr
	// refused says why something is not left; nil if all is.
	refused error
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
	joined  []netip.Addr   // addresses that are now of nodes
	parted  []netip.Addr   // addresses that no longer are
	ownPods netip.Prefix   // set when the node itself got its pod network
}

// before is how things were that an event touched, each as it was at first.
type before struct {
	paths   map[netip.Prefix]path
	present map[netip.Addr]bool
	ownPods netip.Prefix
}

// since is what changed, in all.
func (p *peers) since(b before) (d delta) {
	for network, old := range b.paths {
		switch now := p.networks[network].path; now {
		case old:
		case path{}:
			d.gone = append(d.gone, network)
		default:
			d.paths = append(d.paths, now)
		}
	}
	for ip, was := range b.present {
		switch is := p.addresses[ip] > 0; {
		case is && !was:
			d.joined = append(d.joined, ip)
		case was && !is:
			d.parted = append(d.parted, ip)
		}
	}
	if own := p.ownPods(); own != b.ownPods {
		d.ownPods = own
	}
	return d
}

func (p *peers) begin() before {
	return before{paths: map[netip.Prefix]path{}, present: map[netip.Addr]bool{}, ownPods: p.ownPods()}
}

func (d delta) empty() bool {
	return len(d.paths)+len(d.gone)+len(d.joined)+len(d.parted) == 0 && !d.ownPods.IsValid()
}

// owned is a network, the node that has it, that node's address, and the path there,
// which is zero for none.
type owned struct {
	owner string
	via   netip.Addr
	path  path
}

// peers is what all nodes say, what is left of it by the bounds, and what follows. A
// network that several nodes claim belongs to the oldest of them, for every node alike.
type peers struct {
	self      string
	mode      Mode
	bounds    bounds
	ways      ways
	nodes     map[string]member
	claims    map[netip.Prefix][]string // who claims a network; mostly one
	networks  map[netip.Prefix]owned
	addresses map[netip.Addr]int // of how many nodes each is
	tunnels   int                // how many networks have a tunnel as their path
}

func newPeers(self string, mode Mode) *peers {
	return &peers{self: self, mode: mode, nodes: map[string]member{}, claims: map[netip.Prefix][]string{},
		networks: map[netip.Prefix]owned{}, addresses: map[netip.Addr]int{}}
}

// rebound judges everything again by other bounds. The addresses of nodes and the own
// network may be others afterwards.
func (p *peers) rebound(now bounds) delta {
	next := newPeers(p.self, p.mode)
	next.bounds, next.ways = now, p.ways
	// This node first: what others may say depends on it.
	for _, name := range append([]string{p.self}, slices.Collect(maps.Keys(p.nodes))...) {
		next.update(name, p.nodes[name].said)
	}
	have := make(map[netip.Prefix]path, len(p.networks))
	for network, o := range p.networks {
		if o.path != (path{}) {
			have[network] = o.path
		}
	}
	*p = *next
	return p.repair(have)
}

// judge keeps what the bounds allow of what a node says. Without bounds that is nothing:
// a path that nobody vouches for is worse than none.
func (p *peers) judge(name string, said facts) member {
	m := member{said: said}
	if !p.bounds.known() {
		return m
	}
	var podsErr, ipErr error
	if said.pods != "" {
		m.pods, podsErr = p.bounds.checkPods(said.pods)
	}
	if said.ip.IsValid() {
		ipErr = p.bounds.checkIP(said.ip)
		if ipErr == nil && name != p.self && said.ip == p.nodes[p.self].ip {
			ipErr = fmt.Errorf("the address %s is that of node %s", said.ip, p.self)
		}
		if ipErr == nil {
			m.ip = said.ip
		}
	}
	m.refused = errors.Join(podsErr, ipErr)
	return m
}

// update takes what a node says now; zero facts for a node that is gone.
func (p *peers) update(name string, said facts) delta {
	old := p.nodes[name]
	if old.said == said {
		return delta{}
	}
	b := p.begin()
	now := p.judge(name, said)
	if said == (facts{}) {
		delete(p.nodes, name)
	} else {
		p.nodes[name] = now
	}
	p.move(b, old.ip, now.ip)
	p.claim(name, old.pods, now.pods)
	p.settle(b, old.pods)
	p.settle(b, now.pods)
	if name == p.self && old.ip != now.ip {
		p.rejudge(b)
	}
	if name == p.self || p.ownPods() != b.ownPods {
		p.choose(b) // A tunnel needs to know where this end is.
	}
	return p.since(b)
}

// rejudge looks again at the other nodes: this one has another address.
func (p *peers) rejudge(b before) {
	for name, m := range p.nodes {
		now := p.judge(name, m.said)
		if name == p.self || now.ip == m.ip {
			continue
		}
		p.nodes[name] = now
		p.move(b, m.ip, now.ip)
		p.settle(b, now.pods)
	}
}

// move notes that a node has another address, or the first, or none any more. An
// address that several nodes have stays until the last of them leaves it.
func (p *peers) move(b before, from, to netip.Addr) {
	for ip, by := range map[netip.Addr]int{from: -1, to: 1} {
		if !ip.IsValid() || from == to {
			continue
		}
		if _, touched := b.present[ip]; !touched {
			b.present[ip] = p.addresses[ip] > 0
		}
		p.addresses[ip] += by
		if p.addresses[ip] == 0 {
			delete(p.addresses, ip)
		}
	}
}

// claim moves a node from those who claim one network to those who claim another.
func (p *peers) claim(name string, before, now netip.Prefix) {
	if before == now {
		return
	}
	if left := slices.DeleteFunc(p.claims[before], func(who string) bool { return who == name }); len(left) > 0 {
		p.claims[before] = left
	} else {
		delete(p.claims, before)
	}
	if now.IsValid() {
		p.claims[now] = append(p.claims[now], name)
	}
}

// settle says whose a network is: the oldest node's that claims it.
func (p *peers) settle(b before, network netip.Prefix) {
	if !network.IsValid() {
		return
	}
	oldest := ""
	for _, name := range p.claims[network] {
		if oldest == "" || p.nodes[name].said.age.Before(p.nodes[oldest].said.age) {
			oldest = name
		}
	}
	if oldest == "" {
		p.put(b, network, owned{})
		return
	}
	via := p.nodes[oldest].ip
	if oldest == p.self {
		via = netip.Addr{}
	}
	p.put(b, network, owned{owner: oldest, via: via, path: p.pathTo(network, via)})
}

// ownPods is this node's own pod network, invalid until it has one that is its own.
func (p *peers) ownPods() netip.Prefix {
	if pods := p.nodes[p.self].pods; pods.IsValid() && p.networks[pods].owner == p.self {
		return pods
	}
	return netip.Prefix{}
}

// problem says what is wrong with what this node says of itself; nil for nothing, or
// nothing yet.
func (p *peers) problem() error {
	me := p.nodes[p.self]
	switch {
	case me.said.pods == "":
		return nil
	case !p.bounds.known():
		return fmt.Errorf(
			"the control plane has not told node %s of which network its pod network %s is a part", p.self, me.said.pods,
		)
	case me.refused != nil:
		return fmt.Errorf("node %s: %w", p.self, me.refused)
	case !p.ownPods().IsValid():
		return fmt.Errorf(
			"the pod network %s is that of node %s, which is older; delete node %s so that it gets its own",
			me.pods, p.networks[me.pods].owner, p.self,
		)
	}
	return nil
}

// refused says of other nodes what was not taken from them, in order of their names.
func (p *peers) refused() (all []string) {
	for name, m := range p.nodes {
		owner := p.networks[m.pods].owner
		switch {
		case name == p.self:
		case m.refused != nil:
			all = append(all, fmt.Sprintf("%s: %v", name, m.refused))
		case m.pods.IsValid() && owner != name:
			all = append(all, fmt.Sprintf("%s: the pod network %s is that of %s", name, m.pods, owner))
		}
	}
	slices.Sort(all)
	return all
}

// put sets what is known of a network, nothing if nobody owns it.
func (p *peers) put(b before, network netip.Prefix, now owned) {
	old := p.networks[network].path
	if _, touched := b.paths[network]; !touched {
		b.paths[network] = old
	}
	if old.tunnel {
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
	return p.ownPods().IsValid() && p.nodes[p.self].ip.IsValid()
}

// rewire takes the machine's own ways, and chooses all paths again if they changed.
func (p *peers) rewire(now ways) delta {
	if p.ways.equal(now) {
		return delta{}
	}
	b := p.begin()
	p.ways = now
	p.choose(b)
	return p.since(b)
}

// choose chooses all paths again.
func (p *peers) choose(b before) {
	for network, o := range p.networks {
		o.path = p.pathTo(network, o.via)
		p.put(b, network, o)
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
	ip := p.nodes[p.self].ip
	return tunnel{local: ip, address: p.ownPods().Addr(), mtu: max(p.ways.mtu(ip)-tunnelOverhead, 0)}
}

// mtu is the largest packet, in bytes, that a pod may send so that it reaches all
// other pods whole; 0 if that is not known.
func (p *peers) mtu() int {
	if t := p.tunnel(); t.mtu > 0 {
		return t.mtu
	}
	return p.ways.mtu(p.nodes[p.self].ip)
}
