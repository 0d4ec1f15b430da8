package network

import (
	"maps"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/node/peer"
)

// created gives a node the second of its creation.
func created(n *corev1.Node, second int64) *corev1.Node {
	n.CreationTimestamp = metav1.NewTime(time.Unix(second, 0))
	return n
}

func TestClaimsOutsideTheBoundsAreLeftOut(t *testing.T) {
	for _, c := range []struct{ what, pods, ip, want string }{
		{"everything", "0.0.0.0/0", "10.0.0.3", "+10.0.0.3"},
		{"the API server", "10.0.0.100/32", "10.0.0.3", "+10.0.0.3"},
		{"the part with the API server's address", "10.244.200.0/24", "10.0.0.3", "+10.0.0.3"},
		{"the whole cluster's network", "10.244.0.0/16", "10.0.0.3", "+10.0.0.3"},
		{"half of a part", "10.244.1.0/25", "10.0.0.3", "+10.0.0.3"},
		{"another node's network", "10.244.5.0/24", "10.0.0.3", "+10.0.0.3"},
		{"this node's network", "10.244.0.0/24", "10.0.0.3", "+10.0.0.3"},
		{"IPv6", "fd00::/64", "10.0.0.3", "+10.0.0.3"},
		{"this node's address", "10.244.1.0/24", "10.0.0.2", ""},
		{"an address of a pod", "10.244.1.0/24", "10.244.5.7", ""},
		{"an address of its own pod", "10.244.1.0/24", "10.244.1.1", ""},
		{"no address", "10.244.1.0/24", "0.0.0.0", ""},
		{"the loopback address", "10.244.1.0/24", "127.0.0.1", ""},
		{"a group", "10.244.1.0/24", "224.0.0.1", ""},
		{"everybody", "10.244.1.0/24", "255.255.255.255", ""},
		{"the address of a cloud's metadata", "10.244.1.0/24", "169.254.169.254", ""},
		{"the address of another node", "10.244.1.0/24", "10.0.0.1", "path 10.244.1.0/24 via 10.0.0.1"},
	} {
		p := newPeers("me", Auto)
		p.rebound(bounds{PodNetworks: testNetworks, kept: []netip.Addr{netip.MustParseAddr("10.244.200.1")}})
		p.rewire(oneLink())
		p.update("me", factsOf(peer.Of(created(aNode("me", "10.244.0.0/24", "10.0.0.2"), 1))))
		p.update("good", factsOf(peer.Of(created(aNode("good", "10.244.5.0/24", "10.0.0.1"), 2))))
		before := maps.Clone(p.networks)
		if got := describe(p.update("bad", factsOf(peer.Of(created(aNode("bad", c.pods, c.ip), 3))))); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if c.want == "" || strings.HasPrefix(c.want, "+") {
			if refused := p.refused(); len(refused) != 1 || !strings.HasPrefix(refused[0], "bad: ") {
				t.Errorf("%s: refused %q", c.what, refused)
			}
		}
		for network, o := range before {
			if p.networks[network] != o {
				t.Errorf("%s: %s is now %+v", c.what, network, p.networks[network])
			}
		}
		if err := p.problem(); err != nil {
			t.Errorf("%s: what another node says is this node's problem: %v", c.what, err)
		}
	}
}

// A peer's address is this node's, until this node has another: only then is there a path to the peer's pods.
func TestThePathToAPeerFollowsThisNodesAddress(t *testing.T) {
	p := newPeers("me", Auto)
	p.rebound(bounds{PodNetworks: testNetworks})
	p.rewire(oneLink())
	for _, step := range []struct{ name, pods, ip, want string }{
		{"me", "10.244.0.0/24", "10.0.0.2", "+10.0.0.2, own 10.244.0.0/24"},
		{"peer", "10.244.1.0/24", "10.0.0.2", ""},
		{"me", "10.244.0.0/24", "10.0.0.3", "+10.0.0.3, path 10.244.1.0/24 via 10.0.0.2"},
		{"me", "10.244.0.0/24", "10.0.0.2", "-10.0.0.3, no path 10.244.1.0/24"},
	} {
		if got := describe(p.update(step.name, factsOf(peer.Of(aNode(step.name, step.pods, step.ip))))); got != step.want {
			t.Errorf("%s at %s: %q, want %q", step.name, step.ip, got, step.want)
		}
	}
}

func TestANodeSaysWhatIsWrongWithItself(t *testing.T) {
	for _, c := range []struct {
		what, pods, ip string
		told           bool
		want           string
	}{
		{"nothing yet", "", "10.0.0.2", false, ""},
		{"no bounds", "10.244.0.0/24", "10.0.0.2", false, "has not told node me"},
		{"a network of its own making", "10.9.0.0/24", "10.0.0.2", true, "is not a /24 of the cluster's network 10.244.0.0/16"},
		{"an older node's network", "10.244.5.0/24", "10.0.0.2", true, "is that of node good"},
		{"an address among pods", "10.244.0.0/24", "10.244.9.9", true, "is in the network of the cluster's pods"},
		{"all well", "10.244.0.0/24", "10.0.0.2", true, ""},
	} {
		p := newPeers("me", Auto)
		if c.told {
			p.rebound(bounds{PodNetworks: testNetworks})
		}
		p.update("good", factsOf(peer.Of(created(aNode("good", "10.244.5.0/24", "10.0.0.1"), 2))))
		p.update("me", factsOf(peer.Of(created(aNode("me", c.pods, c.ip), 3))))
		err := p.problem()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

// nonsense is what a stolen node may say, and what good ones do.
func nonsense() (pods, addresses *rapid.Generator[string]) {
	pods = rapid.OneOf(rapid.SampledFrom([]string{
		"", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24", "10.244.200.0/24", "10.244.2.0/25", "10.244.0.0/16", "0.0.0.0/0", "10.0.0.0/24",
		"10.0.0.1/32", "fd00::/64", "::ffff:10.244.1.0/120", "10.244.1.7/24", "224.0.0.0/24", "nonsense",
	}), rapid.String())
	addresses = rapid.OneOf(rapid.SampledFrom([]string{
		"", "10.0.0.1", "10.0.0.2", "10.1.0.1", "10.244.1.1", "10.244.3.0", "0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "169.254.169.254",
		"::1", "fd00::1", "::ffff:10.0.0.9", "10.0.0.255", "nonsense",
	}), rapid.Custom(func(t *rapid.T) string {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes"))).String()
	}))
	return pods, addresses
}

// Whatever nodes say in whatever order, what was applied step by step is what somebody
// who sees it all at once would do, and is within the bounds.
func TestNonsenseStaysItsOwn(t *testing.T) {
	pods, addresses := nonsense()
	limits := []bounds{{}, {PodNetworks: testNetworks}, {PodNetworks: testNetworks, kept: []netip.Addr{netip.MustParseAddr("10.244.200.1")}}}
	rapid.Check(t, func(t *rapid.T) {
		p := newPeers("me", rapid.SampledFrom([]Mode{Auto, HostGateway, VXLAN}).Draw(t, "mode"))
		have, nodes, said := map[netip.Prefix]path{}, map[netip.Addr]bool{}, map[string]facts{}
		apply := func(d delta) {
			for _, to := range d.gone {
				delete(have, to)
			}
			for _, one := range d.paths {
				have[one.to] = one
			}
			for _, ip := range d.joined {
				nodes[ip] = true
			}
			for _, ip := range d.parted {
				delete(nodes, ip)
			}
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				apply(p.rewire(rapid.SampledFrom([]ways{nil, oneLink(), oneLink()[:1]}).Draw(t, "ways")))
			case 1, 2:
				apply(p.rebound(rapid.SampledFrom(limits).Draw(t, "bounds")))
				nodes = map[netip.Addr]bool{} // All rules are made afresh.
				for ip := range p.addresses {
					nodes[ip] = true
				}
			default:
				name := rapid.SampledFrom([]string{"me", "a", "b", "c"}).Draw(t, "node")
				said[name] = facts{}
				if rapid.IntRange(0, 4).Draw(t, "gone") > 0 {
					said[name] = factsOf(peer.Of(created(aNode(name, pods.Draw(t, "pods"), addresses.Draw(t, "ip")), rapid.Int64Range(1, 3).Draw(t, "created"))))
				}
				apply(p.update(name, said[name]))
			}
		}
		fresh := newPeers("me", p.mode)
		fresh.rebound(p.bounds)
		fresh.rewire(p.ways)
		for _, name := range []string{"c", "me", "b", "a"} {
			fresh.update(name, said[name])
		}
		if d := fresh.repair(have); !d.empty() || !maps.Equal(fresh.networks, p.networks) || fresh.tunnels != p.tunnels {
			t.Fatalf("step by step there is %v of %v, at once %v (%s)", have, p.networks, fresh.networks, describe(d))
		}
		if got, want := slices.Collect(maps.Keys(nodes)), fresh.addresses; len(got) != len(want) || !maps.Equal(p.addresses, want) {
			t.Fatalf("addresses of nodes are %v, want %v", got, want)
		}
		for to, one := range have {
			if !testNetworks.Cluster.Contains(to.Addr()) || to.Bits() != 24 || to == p.ownPods() || one.via == p.nodes["me"].ip || testNetworks.Cluster.Contains(one.via) {
				t.Errorf("there is a path %+v", one)
			}
		}
		for name, m := range p.nodes {
			if o := p.networks[m.pods]; m.pods.IsValid() && o.owner != name && !p.nodes[o.owner].said.age.Before(m.said.age) {
				t.Errorf("%s lost %s to %s, which is younger", name, m.pods, o.owner)
			}
		}
	})
}

// The rules are applied by a real packet filter whatever other nodes say, and the next
// good node's address is in them.
func TestRulesApplyInSpiteOfNonsense(t *testing.T) {
	inNewNamespace(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		m, err := newMachine()
		if err != nil {
			t.Error(err)
			return
		}
		n := newNetwork(Config{NodeName: "me", Mode: Auto, ConfDir: filepath.Join(t.TempDir(), "net.d"),
			APIServers: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("10.0.0.100:6443")} }}, m)
		say(n, aNode("me", "10.244.0.0/24", "10.0.0.2"), false)
		pods, addresses := nonsense()
		for i := range 60 {
			say(n, aNode("bad"+string(rune('a'+i%26)), pods.Example(i), addresses.Example(i)), i%7 == 6)
			good := netip.AddrFrom4([4]byte{10, 0, 1, byte(i + 1)})
			say(n, aNode("good", "10.244.77.0/24", good.String()), false)
			// Without a link no path can be kept; the rules are what counts here.
			_ = n.sync(ctx, i%3 == 0)
			out, err := exec.Command("nft", "list", "set", "ip", table, "nodes").CombinedOutput()
			if n.whole || err != nil || !strings.Contains(string(out), good.String()) || !strings.Contains(string(out), "10.0.0.2") {
				t.Errorf("after %d nodes with nonsense the rules are not applied (%v):\n%s", i+1, err, out)
				return
			}
		}
	})
}
