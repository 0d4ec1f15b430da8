package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/node/peer"
)

// testNetworks is the cluster's network in these tests.
var testNetworks = node.PodNetworks{Cluster: netip.MustParsePrefix("10.244.0.0/16"), NodeBits: 24}

func testPeers(mode Mode) *peers {
	p := newPeers("me", mode)
	p.rebound(bounds{PodNetworks: testNetworks})
	return p
}

func aNode(name, pods, ip string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: testNetworks.Annotations()}, Spec: corev1.NodeSpec{PodCIDR: pods}}
	if ip != "" {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: ip}}
	}
	return n
}

// say tells a network of a node as the API server would.
func say(n *Network, o *corev1.Node, gone bool) {
	n.noteOwn(o)
	if gone {
		n.note(o.Name, facts{})
		return
	}
	n.note(o.Name, factsOf(peer.Of(o)))
}

// describe writes a delta as one sorted line.
func describe(d delta) string {
	var parts []string
	for _, p := range d.paths {
		parts = append(parts, fmt.Sprintf("path %s %s %s", p.to, map[bool]string{false: "via", true: "in a tunnel to"}[p.tunnel], p.via))
	}
	for _, n := range d.gone {
		parts = append(parts, "no path "+n.String())
	}
	for _, n := range d.joined {
		parts = append(parts, "+"+n.String())
	}
	for _, n := range d.parted {
		parts = append(parts, "-"+n.String())
	}
	if d.ownPods.IsValid() {
		parts = append(parts, "own "+d.ownPods.String())
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// oneLink are the ways of a machine on the link 10.0.0.0/24 with a router.
func oneLink() ways {
	return ways{
		{to: netip.MustParsePrefix("0.0.0.0/0"), mtu: 1500},
		{to: netip.MustParsePrefix("10.0.0.0/24"), direct: true, mtu: 9000},
	}
}

func TestPeersFollowNodes(t *testing.T) {
	p := testPeers(Auto)
	p.rewire(oneLink())
	for _, step := range []struct {
		name string
		node *corev1.Node
		gone bool
		want string
	}{
		{"a node joins without a pod network", aNode("a", "", "10.0.0.1"), false, "+10.0.0.1"},
		{"it gets one", aNode("a", "10.244.1.0/24", "10.0.0.1"), false, "path 10.244.1.0/24 via 10.0.0.1"},
		{"its heartbeat changes nothing", aNode("a", "10.244.1.0/24", "10.0.0.1"), false, ""},
		{"it moves to another address", aNode("a", "10.244.1.0/24", "10.0.0.9"), false, "+10.0.0.9, -10.0.0.1, path 10.244.1.0/24 via 10.0.0.9"},
		{"a node behind the router has to wait for a tunnel", aNode("far", "10.244.7.0/24", "10.1.0.1"), false, "+10.1.0.1"},
		{"this node needs no path to itself, and can have tunnels now", aNode("me", "10.244.0.0/24", "10.0.0.2"), false, "+10.0.0.2, own 10.244.0.0/24, path 10.244.7.0/24 in a tunnel to 10.1.0.1"},
		{"a node moves from the router's other side to this link", aNode("far", "10.244.7.0/24", "10.0.0.7"), false, "+10.0.0.7, -10.1.0.1, path 10.244.7.0/24 via 10.0.0.7"},
		{"a pod network without an address has no path", aNode("b", "10.244.2.0/24", ""), false, ""},
		{"with the address it has one", aNode("b", "10.244.2.0/24", "10.0.0.3"), false, "+10.0.0.3, path 10.244.2.0/24 via 10.0.0.3"},
		{"a new node cannot take a network from its owner", aNode("c", "10.244.1.0/24", "10.0.0.4"), false, "+10.0.0.4"},
		{"it gets it when the owner is gone", aNode("a", "", ""), true, "-10.0.0.9, path 10.244.1.0/24 via 10.0.0.4"},
		{"a node leaves", aNode("b", "", ""), true, "-10.0.0.3, no path 10.244.2.0/24"},
		{"a nonsense network is none", aNode("d", "nonsense", ""), false, ""},
	} {
		now := factsOf(peer.Of(step.node))
		if step.gone {
			now = facts{}
		}
		if got := describe(p.update(step.node.Name, now)); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.name, got, step.want)
		}
	}
	wrong := netip.MustParsePrefix("10.244.1.0/24")
	have := map[netip.Prefix]path{
		netip.MustParsePrefix("10.244.9.0/24"): {to: netip.MustParsePrefix("10.244.9.0/24"), via: netip.MustParseAddr("10.0.0.7")},
		wrong:                                  {to: wrong, via: netip.MustParseAddr("10.0.0.4"), tunnel: true},
	}
	if got, want := describe(p.repair(have)), "no path 10.244.9.0/24, path 10.244.1.0/24 via 10.0.0.4, path 10.244.7.0/24 via 10.0.0.7"; got != want {
		t.Errorf("repair:\n got %s\nwant %s", got, want)
	}
	apart := ways{{to: netip.MustParsePrefix("10.0.0.2/32"), direct: true, mtu: 1400}, {to: netip.MustParsePrefix("0.0.0.0/0"), mtu: 1400}}
	if got, want := describe(p.rewire(apart)), "path 10.244.1.0/24 in a tunnel to 10.0.0.4, path 10.244.7.0/24 in a tunnel to 10.0.0.7"; got != want {
		t.Errorf("when nobody else is on the link any more:\n got %s\nwant %s", got, want)
	}
}

func TestModes(t *testing.T) {
	near, far := aNode("near", "10.244.1.0/24", "10.0.0.1"), aNode("far", "10.244.2.0/24", "10.1.0.1")
	end := tunnel{local: netip.MustParseAddr("10.0.0.2"), address: netip.MustParseAddr("10.244.0.0"), mtu: 8950}
	for _, c := range []struct {
		mode    Mode
		nodes   []*corev1.Node
		tunnels int
		end     tunnel
		mtu     int
		missing []string
	}{
		{Auto, []*corev1.Node{near}, 0, tunnel{}, 9000, nil},
		{Auto, []*corev1.Node{near, far}, 1, end, 8950, nil},
		{VXLAN, []*corev1.Node{near, far}, 2, end, 8950, nil},
		{VXLAN, nil, 0, end, 8950, nil}, // others may be first to know of this node
		{HostGateway, []*corev1.Node{near, far}, 0, tunnel{}, 9000, []string{"far"}},
	} {
		p := testPeers(c.mode)
		p.rewire(oneLink())
		for _, n := range append(c.nodes, aNode("me", "10.244.0.0/24", "10.0.0.2")) {
			p.update(n.Name, factsOf(peer.Of(n)))
		}
		if p.tunnels != c.tunnels || p.tunnel() != c.end || p.mtu() != c.mtu || !slices.Equal(p.unreachable(), c.missing) {
			t.Errorf("%s with %d others: %d tunnels from %+v, packets of %d bytes, missing %v", c.mode, len(c.nodes), p.tunnels, p.tunnel(), p.mtu(), p.unreachable())
		}
	}
}

// Whatever happens in whatever order, what was applied step by step is what a
// look at the whole finds right.
func TestPathsFollowAnyHistory(t *testing.T) {
	prefixes := rapid.SampledFrom([]string{"", "10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24"})
	addresses := rapid.SampledFrom([]string{"", "10.0.0.1", "10.0.0.2", "10.1.0.1"})
	rapid.Check(t, func(t *rapid.T) {
		p := testPeers(rapid.SampledFrom([]Mode{Auto, HostGateway, VXLAN}).Draw(t, "mode"))
		have := map[netip.Prefix]path{}
		apply := func(d delta) {
			for _, to := range d.gone {
				delete(have, to)
			}
			for _, one := range d.paths {
				have[one.to] = one
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "what") == 0 {
				apply(p.rewire(rapid.SampledFrom([]ways{nil, oneLink(), oneLink()[:1]}).Draw(t, "ways")))
				continue
			}
			name := rapid.SampledFrom([]string{"me", "a", "b", "c"}).Draw(t, "node")
			apply(p.update(name, factsOf(peer.Of(aNode(name, prefixes.Draw(t, "pods"), addresses.Draw(t, "ip"))))))
		}
		if d := p.repair(have); !d.empty() {
			t.Errorf("what is there differs from what should be: %s", describe(d))
		}
		tunnels := 0
		for _, one := range have {
			if one.tunnel {
				tunnels++
			}
		}
		if tunnels != p.tunnels {
			t.Errorf("%d tunnels, counted %d", tunnels, p.tunnels)
		}
	})
}

func TestCNIConfig(t *testing.T) {
	raw, err := cniConfig(netip.MustParsePrefix("10.244.3.0/24"), 1450)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name    string
		Plugins []struct {
			Type         string
			IPAM         struct{ Ranges [][]struct{ Subnet string } }
			Capabilities map[string]bool
			IPMasq       bool
			HairpinMode  bool
			MTU          int
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	bridge, portmap := got.Plugins[0], got.Plugins[1]
	if bridge.Type != "bridge" || bridge.IPAM.Ranges[0][0].Subnet != "10.244.3.0/24" || bridge.IPMasq || !bridge.HairpinMode || bridge.MTU != 1450 {
		t.Errorf("bridge plugin is %+v", bridge)
	}
	if portmap.Type != "portmap" || !portmap.Capabilities["portMappings"] {
		t.Errorf("port map plugin is %+v", portmap)
	}
}

func TestRulesets(t *testing.T) {
	addresses := func(all ...string) []netip.Addr {
		var list []netip.Addr
		for _, p := range all {
			list = append(list, netip.MustParseAddr(p))
		}
		return list
	}
	whole := wholeRuleset(rules{pods: netip.MustParsePrefix("10.244.0.0/24"), cluster: testNetworks.Cluster, nodes: addresses("10.0.0.2", "10.0.0.1"),
		servers: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:6443"), netip.MustParseAddrPort("[fd00::1]:6443")}})
	for _, want := range []string{
		"delete table ip everynode-pods\n", "ip saddr 10.244.0.0/24 ip daddr != 10.244.0.0/16 ip daddr != @nodes",
		"add element ip everynode-pods nodes { 10.0.0.1, 10.0.0.2 }\n", "ip daddr 10.0.0.9 tcp dport 6443 masquerade",
	} {
		if !strings.Contains(whole, want) {
			t.Errorf("whole ruleset lacks %q:\n%s", want, whole)
		}
	}
	if got := changedRuleset(nil, nil); got != "" {
		t.Errorf("no change gives commands: %q", got)
	}
	want := "add element ip everynode-pods nodes { 10.0.0.2 }\ndelete element ip everynode-pods nodes { 10.0.0.3 }\n"
	if got := changedRuleset(addresses("10.0.0.2"), addresses("10.0.0.3")); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// fakeKernel keeps paths, the last commands and how much they made; it refuses while broken is set.
type fakeKernel struct {
	made    counts
	have    map[netip.Prefix]path
	end     tunnel
	applied chan string
	broken  error
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{have: map[netip.Prefix]path{}, applied: make(chan string, 8)}
}

func (*fakeKernel) ways() (ways, error) { return oneLink(), nil }

func (k *fakeKernel) paths() (map[netip.Prefix]path, error) { return maps.Clone(k.have), nil }

func (k *fakeKernel) addPath(p path) error {
	if k.broken == nil && p.tunnel && k.end == (tunnel{}) {
		return errors.New("no such link")
	}
	if k.broken == nil {
		k.have[p.to] = p
	}
	return k.broken
}

func (k *fakeKernel) removePath(to netip.Prefix) error {
	delete(k.have, to)
	return nil
}

func (k *fakeKernel) setTunnel(want tunnel) error {
	if k.broken == nil {
		k.end = want
	}
	return k.broken
}

func (*fakeKernel) follow(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

func (k *fakeKernel) applyRules(_ context.Context, commands string) error {
	if k.broken != nil {
		return k.broken
	}
	if strings.Contains(commands, "delete table") {
		k.made = counts{rules: map[string]int{"postrouting": strings.Count(commands, " masquerade\n"), "input": strings.Count(commands, " drop\n")}}
	}
	for line := range strings.Lines(commands) {
		if strings.HasPrefix(line, "add element") {
			k.made.nodes += strings.Count(line, ",") + 1
		} else if strings.HasPrefix(line, "delete element") {
			k.made.nodes -= strings.Count(line, ",") + 1
		}
	}
	k.applied <- commands
	return nil
}

func (k *fakeKernel) counts() (counts, error) { return k.made, nil }

func TestSyncMakesUpForFailures(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	k := newFakeKernel()
	k.broken = errors.New("not now")
	n := newNetwork(Config{NodeName: "me", Mode: Auto, ConfDir: filepath.Join(t.TempDir(), "net.d")}, k)
	say(n, aNode("me", "10.244.0.0/24", "10.0.0.1"), false)
	say(n, aNode("a", "10.244.1.0/24", "10.0.0.2"), false)
	say(n, aNode("far", "10.244.2.0/24", "10.1.0.2"), false)
	if err := n.sync(ctx, true); err == nil {
		t.Fatal("a kernel that refuses is no failure")
	}
	k.broken = nil
	if err := n.sync(ctx, true); err != nil {
		t.Fatal(err)
	}
	near, far := k.have[netip.MustParsePrefix("10.244.1.0/24")], k.have[netip.MustParsePrefix("10.244.2.0/24")]
	if near.via.String() != "10.0.0.2" || near.tunnel || far.via.String() != "10.1.0.2" || !far.tunnel || k.end.mtu != 8950 {
		t.Errorf("what failed was not made later: %v, %+v", k.have, k.end)
	}
	if rules := <-k.applied; !strings.HasPrefix(rules, "table ip everynode-pods {}") {
		t.Errorf("after a failure the rules were not made afresh: %s", rules)
	}
	say(n, aNode("a", "10.244.1.0/24", "10.0.0.2"), true)
	say(n, aNode("far", "10.244.2.0/24", "10.1.0.2"), true)
	if err := n.sync(ctx, false); err != nil {
		t.Fatal(err)
	}
	if rules := <-k.applied; rules != "delete element ip everynode-pods nodes { 10.0.0.2 }\ndelete element ip everynode-pods nodes { 10.1.0.2 }\n" {
		t.Errorf("a node that left changed the rules by %q", rules)
	}
	if len(k.have) != 0 || k.end != (tunnel{}) {
		t.Errorf("paths are left: %v, %+v", k.have, k.end)
	}
}

// allNodes tells what the API server tells.
func allNodes(client kubernetes.Interface) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			nodes, err := client.CoreV1().Nodes().List(ctx, o)
			if err != nil {
				return nil, err
			}
			list := &peer.NodeList{ListMeta: nodes.ListMeta}
			for i := range nodes.Items {
				list.Items = append(list.Items, *peer.Of(&nodes.Items[i]))
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil) // the fake client cannot
			}
			w, err := client.CoreV1().Nodes().Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if n, ok := e.Object.(*corev1.Node); ok {
					e.Object = peer.Of(n)
				}
				return e, true
			}), nil
		},
	}
}

func TestInboxTellsWhoHasGone(t *testing.T) {
	var said []string
	box := newInbox(func(name string, now facts) { said = append(said, fmt.Sprintf("%s %s", name, now.pods)) }, map[string]bool{"old": true})
	told := func(what string, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(said, want) {
			t.Errorf("%s: %v, want %v (%v)", what, said, want, err)
		}
		said = nil
	}
	a, b := peer.Of(aNode("a", "10.244.1.0/24", "10.0.0.1")), peer.Of(aNode("b", "10.244.2.0/24", "10.0.0.2"))
	told("all at first", box.Replace([]any{a, b}, "1"), "a 10.244.1.0/24", "b 10.244.2.0/24", "old ")
	told("a new one", box.Add(peer.Of(aNode("c", "10.244.3.0/24", ""))), "c 10.244.3.0/24")
	told("one that goes", box.Delete(a), "a ")
	told("all again", box.Replace([]any{b}, "9"), "b 10.244.2.0/24", "c ")
	if err := box.Add(&corev1.Node{}); err == nil {
		t.Error("something else was taken for a node")
	}
	select {
	case <-box.full:
	default:
		t.Error("nobody learns that all were told")
	}
}

func TestRunConfiguresWhenTheNodeGetsItsNetwork(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	client := fake.NewClientset(aNode("me", "", "10.0.0.1"))
	k := newFakeKernel()
	dir := filepath.Join(t.TempDir(), "net.d")
	own := coreinformers.NewNodeInformer(client, 0, nil)
	go own.RunWithContext(ctx)
	n := newNetwork(Config{NodeName: "me", Mode: Auto, AllNodes: allNodes(client), Own: own, ConfDir: dir}, k)
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	if _, err := client.CoreV1().Nodes().Update(ctx, aNode("me", "10.244.7.0/24", "10.0.0.1"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case rules := <-k.applied:
		if !strings.Contains(rules, "ip saddr 10.244.7.0/24") {
			t.Errorf("rules are not for the node's pods: %s", rules)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("no rules were applied")
	}
	path := filepath.Join(dir, confName)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if raw, err := os.ReadFile(path); err == nil {
			if !strings.Contains(string(raw), "10.244.7.0/24") {
				t.Errorf("CNI configuration is not for the node's pods: %s", raw)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no CNI configuration was written")
		}
		time.Sleep(5 * time.Millisecond)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v), want the configuration alone", entries, err)
	}
}

// Runtimes take the first configuration by name. One that comes before ours is named, with
// what to do, and ours is written once it is gone.
func TestConfigurationInTheWay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "net.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, inTheWay := range map[string]bool{
		"10-containerd-net.conflist": true, "05-cilium.conf": true, "00.json": true,
		"10-containerd-net.conflist.old": false, "00-README": false, "87-podman.conflist": false,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := writeConf(dir, []byte("{}\n"))
		if inTheWay != (err != nil) || err != nil && (!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--pod-network none")) {
			t.Errorf("with %s: %v", name, err)
		}
		if _, there := os.Stat(filepath.Join(dir, confName)); (there == nil) == inTheWay {
			t.Errorf("with %s ours is there: %v", name, there == nil)
		}
		for _, file := range []string{path, filepath.Join(dir, confName)} {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
}
