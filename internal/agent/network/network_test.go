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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
)

func node(name, pods, ip string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: pods}}
	if ip != "" {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: ip}}
	}
	return n
}

// describe writes a delta as one sorted line.
func describe(d delta) string {
	var parts []string
	for _, r := range d.routes {
		parts = append(parts, fmt.Sprintf("route %s via %s", r.to, r.via))
	}
	for _, n := range d.gone {
		parts = append(parts, "no route "+n.String())
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

func TestPeersFollowNodes(t *testing.T) {
	p := newPeers("me")
	for _, step := range []struct {
		name string
		node *corev1.Node
		gone bool
		want string
	}{
		{"a node joins without a pod network", node("a", "", "10.0.0.1"), false, "+10.0.0.1/32"},
		{"it gets one", node("a", "10.244.1.0/24", "10.0.0.1"), false, "+10.244.1.0/24, route 10.244.1.0/24 via 10.0.0.1"},
		{"its heartbeat changes nothing", node("a", "10.244.1.0/24", "10.0.0.1"), false, ""},
		{"it moves to another address", node("a", "10.244.1.0/24", "10.0.0.9"), false, "+10.0.0.9/32, -10.0.0.1/32, route 10.244.1.0/24 via 10.0.0.9"},
		{"this node needs no route to itself", node("me", "10.244.0.0/24", "10.0.0.2"), false, "+10.0.0.2/32, +10.244.0.0/24, own 10.244.0.0/24"},
		{"a pod network without an address has no route", node("b", "10.244.2.0/24", ""), false, "+10.244.2.0/24"},
		{"with the address it has one", node("b", "10.244.2.0/24", "10.0.0.3"), false, "+10.0.0.3/32, route 10.244.2.0/24 via 10.0.0.3"},
		{"a new node takes over a network before its owner is known to be gone", node("c", "10.244.1.0/24", "10.0.0.4"), false, "+10.0.0.4/32, route 10.244.1.0/24 via 10.0.0.4"},
		{"then the old owner leaves, and takes only its address", node("a", "", ""), true, "-10.0.0.9/32"},
		{"a node leaves", node("b", "", ""), true, "-10.0.0.3/32, -10.244.2.0/24, no route 10.244.2.0/24"},
		{"a nonsense network is none", node("d", "nonsense", ""), false, ""},
	} {
		now := factsOf(step.node)
		if step.gone {
			now = facts{}
		}
		if got := describe(p.update(step.node.Name, now)); got != step.want {
			t.Errorf("%s:\n got %s\nwant %s", step.name, got, step.want)
		}
	}
	have := map[netip.Prefix]netip.Addr{
		netip.MustParsePrefix("10.244.9.0/24"): netip.MustParseAddr("10.0.0.7"),
		netip.MustParsePrefix("10.244.1.0/24"): netip.MustParseAddr("10.0.0.9"),
	}
	if got, want := describe(p.repair(have)), "no route 10.244.9.0/24, route 10.244.1.0/24 via 10.0.0.4"; got != want {
		t.Errorf("repair:\n got %s\nwant %s", got, want)
	}
}

func TestCNIConfig(t *testing.T) {
	raw, err := cniConfig(netip.MustParsePrefix("10.244.3.0/24"))
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
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	bridge, portmap := got.Plugins[0], got.Plugins[1]
	if bridge.Type != "bridge" || bridge.IPAM.Ranges[0][0].Subnet != "10.244.3.0/24" || bridge.IPMasq || !bridge.HairpinMode {
		t.Errorf("bridge plugin is %+v", bridge)
	}
	if portmap.Type != "portmap" || !portmap.Capabilities["portMappings"] {
		t.Errorf("port map plugin is %+v", portmap)
	}
}

func TestRulesets(t *testing.T) {
	prefixes := func(all ...string) []netip.Prefix {
		var list []netip.Prefix
		for _, p := range all {
			list = append(list, netip.MustParsePrefix(p))
		}
		return list
	}
	whole := wholeRuleset(netip.MustParsePrefix("10.244.0.0/24"), prefixes("10.244.1.0/24", "10.0.0.1/32"))
	for _, want := range []string{
		"delete table ip everynode-pods\n", "ip saddr 10.244.0.0/24 ip daddr != @cluster",
		"add element ip everynode-pods cluster { 10.0.0.1, 10.244.1.0/24 }\n",
	} {
		if !strings.Contains(whole, want) {
			t.Errorf("whole ruleset lacks %q:\n%s", want, whole)
		}
	}
	if got := changedRuleset(nil, nil); got != "" {
		t.Errorf("no change gives commands: %q", got)
	}
	want := "add element ip everynode-pods cluster { 10.0.0.2 }\ndelete element ip everynode-pods cluster { 10.244.1.0/24 }\n"
	if got := changedRuleset(prefixes("10.0.0.2/32"), prefixes("10.244.1.0/24")); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// fakeKernel keeps routes and the last commands; it refuses while broken is set.
type fakeKernel struct {
	routes  map[netip.Prefix]netip.Addr
	applied chan string
	broken  error
}

func (k *fakeKernel) listRoutes() (map[netip.Prefix]netip.Addr, error) {
	return maps.Clone(k.routes), nil
}

func (k *fakeKernel) addRoute(r route) error {
	if k.broken != nil {
		return k.broken
	}
	k.routes[r.to] = r.via
	return nil
}

func (k *fakeKernel) removeRoute(to netip.Prefix) error {
	delete(k.routes, to)
	return nil
}

func (k *fakeKernel) applyRules(_ context.Context, commands string) error {
	if k.broken != nil {
		return k.broken
	}
	k.applied <- commands
	return nil
}

func TestSyncMakesUpForFailures(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	k := &fakeKernel{routes: map[netip.Prefix]netip.Addr{}, applied: make(chan string, 8), broken: errors.New("not now")}
	n := newNetwork(Config{NodeName: "me", ConfDir: filepath.Join(t.TempDir(), "net.d")}, k)
	n.note(node("me", "10.244.0.0/24", "10.0.0.1"), false)
	n.note(node("a", "10.244.1.0/24", "10.0.0.2"), false)
	if err := n.sync(ctx, true); err == nil {
		t.Fatal("a kernel that refuses is no failure")
	}
	k.broken = nil
	if err := n.sync(ctx, true); err != nil {
		t.Fatal(err)
	}
	if via := k.routes[netip.MustParsePrefix("10.244.1.0/24")]; via.String() != "10.0.0.2" {
		t.Errorf("the route that failed was not made later: %v", k.routes)
	}
	if rules := <-k.applied; !strings.HasPrefix(rules, "table ip everynode-pods {}") {
		t.Errorf("after a failure the rules were not made afresh: %s", rules)
	}
	n.note(node("a", "10.244.1.0/24", "10.0.0.2"), true)
	if err := n.sync(ctx, false); err != nil {
		t.Fatal(err)
	}
	if rules := <-k.applied; rules != "delete element ip everynode-pods cluster { 10.0.0.2, 10.244.1.0/24 }\n" {
		t.Errorf("a node that left changed the rules by %q", rules)
	}
	if len(k.routes) != 0 {
		t.Errorf("routes are left: %v", k.routes)
	}
}

func TestRunConfiguresWhenTheNodeGetsItsNetwork(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	client := fake.NewClientset(node("me", "", "10.0.0.1"))
	k := &fakeKernel{routes: map[netip.Prefix]netip.Addr{}, applied: make(chan string, 8)}
	dir := filepath.Join(t.TempDir(), "net.d")
	n := newNetwork(Config{NodeName: "me", Client: client, ConfDir: dir}, k)
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	if _, err := client.CoreV1().Nodes().Update(ctx, node("me", "10.244.7.0/24", "10.0.0.1"), metav1.UpdateOptions{}); err != nil {
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
