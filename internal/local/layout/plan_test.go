package layout

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func prefixes(all ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, p := range all {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

func TestNewPlanNamesAndAddresses(t *testing.T) {
	o := Options{DataDir: "/var/lib/everynode", Nodes: 3, APIPort: 6443}
	p := New(o, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	if len(p.Nodes) != 3 || p.Nodes[0] != (Node{"node-1", netip.MustParseAddr("10.9.8.1")}) ||
		p.Nodes[2].IP.String() != "10.9.8.3" {
		t.Errorf("nodes are %v", p.Nodes)
	}
	if p.NodesURL() != "https://10.9.8.254:6443" || p.LocalURL() != "https://127.0.0.1:6443" {
		t.Errorf("the API is at %s and %s", p.NodesURL(), p.LocalURL())
	}
	if len(p.HostLink()) > 15 {
		t.Errorf("link name %q is longer than the kernel takes", p.HostLink())
	}
	again := New(o, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	other := New(Options{DataDir: "/tmp/other", Nodes: 3, APIPort: 6443}, RuntimeContainerd,
		netip.MustParsePrefix("10.9.8.0/24"))
	if again.ID != p.ID || other.ID == p.ID {
		t.Errorf("ids are %s, again %s, for another data dir %s", p.ID, again.ID, other.ID)
	}
	for _, name := range []string{p.HostLink(), p.SwitchNetns(), p.NodeNetns("node-1"), p.NATTable(),
		p.NodeCgroup("node-1")} {
		if !strings.Contains(name, p.ID) {
			t.Errorf("name %q does not tell the cluster", name)
		}
	}
	if s := New(o, RuntimeSimulated, netip.Prefix{}); s.NodeCount() != 3 || len(s.Nodes) != 0 || s.Gateway.IsValid() {
		t.Errorf("a plan of simulated nodes is %+v", s)
	}
}

func TestPlanOfSeveralServers(t *testing.T) {
	o := Options{DataDir: "/d", Nodes: 2, ControlPlanes: 3, APIPort: 6443}
	p := New(o, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	if len(p.Servers) != 3 || p.Servers[0] != (Node{"server-1", netip.MustParseAddr("10.9.8.253")}) ||
		p.ServerAddress(2).String() != "10.9.8.251:6443" {
		t.Errorf("servers are %v", p.Servers)
	}
	if p.ServerDir(0) != "/d" || p.ServerDir(1) != "/d/servers/server-2" || p.ServerLogOf(0) != "/d/logs/server.log" ||
		p.ServerLogOf(2) != "/d/logs/server-3.log" {
		t.Errorf("they have %s, %s, %s and %s", p.ServerDir(0), p.ServerDir(1), p.ServerLogOf(0), p.ServerLogOf(2))
	}
	if got := strings.Join(p.GateAddresses(), " "); got != "127.0.0.1:6443 10.9.8.254:6443" {
		t.Errorf("they are reached at %s", got)
	}
	s := New(o, RuntimeSimulated, netip.Prefix{})
	other := New(Options{DataDir: "/e", Nodes: 2, ControlPlanes: 3, APIPort: 6443}, RuntimeSimulated, netip.Prefix{})
	for n := range s.Servers {
		if ip := s.Servers[n].IP; !ip.IsLoopback() || ip == netip.MustParseAddr("127.0.0.1") || ip == other.Servers[n].IP {
			t.Errorf("without networks of their own a server is at %s, of another cluster at %s", ip, other.Servers[n].IP)
		}
	}
	if one := New(Options{DataDir: "/d", Nodes: 2, ControlPlanes: 1}, RuntimeSimulated,
		netip.Prefix{}); one.Servers != nil || one.ControlPlanes() != 1 {
		t.Errorf("one server alone is planned as %v", one.Servers)
	}
	o.Nodes = 250
	if o.ValidateFor(RuntimeContainerd) == nil {
		t.Error("nodes have the addresses of servers")
	}
}

func TestPickSubnet(t *testing.T) {
	for _, tc := range []struct {
		name  string
		id    string
		taken []netip.Prefix
		want  string
	}{
		{"where the id says", "0a0b0000", nil, "10.10.11.0/24"},
		{"the next one if a route is there", "0a0b0000", prefixes("10.10.11.128/25"), "10.10.12.0/24"},
		{"beyond a large network", "0a0b0000", prefixes("10.10.0.0/16"), "10.11.0.0/24"},
		{"a default route takes nothing", "0a0b0000", prefixes("0.0.0.0/0"), "10.10.11.0/24"},
		{"not among Services", "60000000", nil, "10.97.0.0/24"},
		{"not among pods, and round the end", "f4ff0000", prefixes("10.245.0.0/16", "10.246.0.0/15", "10.248.0.0/13"),
			"10.0.0.0/24"},
	} {
		got, err := PickSubnet(tc.id, tc.taken)
		if err != nil || got.String() != tc.want {
			t.Errorf("%s: got %s (%v), want %s", tc.name, got, err, tc.want)
		}
	}
	if _, err := PickSubnet("0a0b0000", prefixes("10.0.0.0/8")); err == nil || !strings.Contains(err.Error(), "ip route") {
		t.Errorf("a machine without a free subnet gives %v", err)
	}
}

func TestOptionsComplete(t *testing.T) {
	three := &State{Plan: New(Options{DataDir: "/d", Nodes: 5, ControlPlanes: 3, APIPort: 7000, PodNetwork: "vxlan"},
		RuntimeSimulated, netip.Prefix{})}
	last := &State{Plan: New(Options{DataDir: "/d", Nodes: 5, APIPort: 7000, PodNetwork: "vxlan"}, RuntimeSimulated,
		netip.Prefix{})}
	for _, tc := range []struct {
		name string
		o    Options
		last *State
		want Options
		err  string
	}{
		{"a new cluster", Options{DataDir: "/d"}, nil, Options{DataDir: "/d", Nodes: 3, ControlPlanes: 1,
			Runtime: RuntimeAuto, APIPort: 6443, PodNetwork: "auto"}, ""},
		{"as it was", Options{DataDir: "/d"}, last, Options{DataDir: "/d", Nodes: 5, ControlPlanes: 1,
			Runtime: RuntimeSimulated, APIPort: 7000, PodNetwork: "vxlan"}, ""},
		{"changed", Options{DataDir: "/d", Nodes: 2, APIPort: 1, PodNetwork: "none"}, last,
			Options{DataDir: "/d", Nodes: 2, ControlPlanes: 1, Runtime: RuntimeSimulated, APIPort: 1, PodNetwork: "none"}, ""},
		{"three servers as before", Options{DataDir: "/d"}, three,
			Options{DataDir: "/d", Nodes: 5, ControlPlanes: 3, Runtime: RuntimeSimulated, APIPort: 7000, PodNetwork: "vxlan"},
			""},
		{"one becomes three", Options{DataDir: "/d", ControlPlanes: 3}, last,
			Options{DataDir: "/d", Nodes: 5, ControlPlanes: 3, Runtime: RuntimeSimulated, APIPort: 7000, PodNetwork: "vxlan"},
			""},
		{"fewer servers", Options{DataDir: "/d", ControlPlanes: 1}, three, Options{}, "--control-planes 3 or more"},
		{"two servers", Options{DataDir: "/d", ControlPlanes: 2}, nil, Options{}, "--control-planes 1, 3 or 5"},
		{"seven servers", Options{DataDir: "/d", ControlPlanes: 7}, nil, Options{}, "--control-planes 1, 3 or 5"},
		{"relative data dir", Options{DataDir: "d"}, nil, Options{}, "not an absolute path"},
		{"negative nodes", Options{DataDir: "/d", Nodes: -1}, nil, Options{}, "at least one"},
		{"unknown runtime", Options{DataDir: "/d", Runtime: "docker"}, nil, Options{},
			"--runtime auto, containerd or simulated"},
		{"unknown pod network", Options{DataDir: "/d", PodNetwork: "ipip"}, nil, Options{},
			"--pod-network auto, host-gw, vxlan, none"},
		{"no such port", Options{DataDir: "/d", APIPort: 70000}, nil, Options{}, "--api-port"},
	} {
		got, err := tc.o.Complete(tc.last)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.err)
		}
		if err == nil && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
	many := Options{DataDir: "/d", Nodes: 1000, Runtime: RuntimeAuto, APIPort: 1}
	if many.ValidateFor(RuntimeContainerd) == nil || many.ValidateFor(RuntimeSimulated) != nil {
		t.Error("1000 nodes must be refused with containers and allowed simulated")
	}
}
