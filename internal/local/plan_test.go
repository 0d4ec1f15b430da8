package local

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
	p := newPlan(o, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	if len(p.Nodes) != 3 || p.Nodes[0] != (Node{"node-1", netip.MustParseAddr("10.9.8.1")}) || p.Nodes[2].IP.String() != "10.9.8.3" {
		t.Errorf("nodes are %v", p.Nodes)
	}
	if p.NodesURL() != "https://10.9.8.254:6443" || p.LocalURL() != "https://127.0.0.1:6443" {
		t.Errorf("the API is at %s and %s", p.NodesURL(), p.LocalURL())
	}
	if len(p.HostLink()) > 15 {
		t.Errorf("link name %q is longer than the kernel takes", p.HostLink())
	}
	again := newPlan(o, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	other := newPlan(Options{DataDir: "/tmp/other", Nodes: 3, APIPort: 6443}, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	if again.ID != p.ID || other.ID == p.ID {
		t.Errorf("ids are %s, again %s, for another data dir %s", p.ID, again.ID, other.ID)
	}
	for _, name := range []string{p.HostLink(), p.SwitchNetns(), p.NodeNetns("node-1"), p.NATTable(), p.NodeCgroup("node-1")} {
		if !strings.Contains(name, p.ID) {
			t.Errorf("name %q does not tell the cluster", name)
		}
	}
	if s := newPlan(o, RuntimeSimulated, netip.Prefix{}); s.nodeCount() != 3 || len(s.Nodes) != 0 || s.Gateway.IsValid() {
		t.Errorf("a plan of simulated nodes is %+v", s)
	}
}

func TestPlanOfSeveralServers(t *testing.T) {
	o := Options{DataDir: "/d", Nodes: 2, ControlPlanes: 3, APIPort: 6443}
	p := newPlan(o, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	if len(p.Servers) != 3 || p.Servers[0] != (Node{"server-1", netip.MustParseAddr("10.9.8.253")}) || p.ServerAddress(2).String() != "10.9.8.251:6443" {
		t.Errorf("servers are %v", p.Servers)
	}
	if p.ServerDir(0) != "/d" || p.ServerDir(1) != "/d/servers/server-2" || p.ServerLogOf(0) != "/d/logs/server.log" || p.ServerLogOf(2) != "/d/logs/server-3.log" {
		t.Errorf("they have %s, %s, %s and %s", p.ServerDir(0), p.ServerDir(1), p.ServerLogOf(0), p.ServerLogOf(2))
	}
	if got := strings.Join(p.gateAddresses(), " "); got != "127.0.0.1:6443 10.9.8.254:6443" {
		t.Errorf("they are reached at %s", got)
	}
	s := newPlan(o, RuntimeSimulated, netip.Prefix{})
	other := newPlan(Options{DataDir: "/e", Nodes: 2, ControlPlanes: 3, APIPort: 6443}, RuntimeSimulated, netip.Prefix{})
	for n := range s.Servers {
		if ip := s.Servers[n].IP; !ip.IsLoopback() || ip == netip.MustParseAddr("127.0.0.1") || ip == other.Servers[n].IP {
			t.Errorf("without networks of their own a server is at %s, of another cluster at %s", ip, other.Servers[n].IP)
		}
	}
	if one := newPlan(Options{DataDir: "/d", Nodes: 2, ControlPlanes: 1}, RuntimeSimulated, netip.Prefix{}); one.Servers != nil || one.controlPlanes() != 1 {
		t.Errorf("one server alone is planned as %v", one.Servers)
	}
	if o.Nodes = 250; o.validateFor(RuntimeContainerd) == nil {
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
		{"not among pods, and round the end", "f4ff0000", prefixes("10.245.0.0/16", "10.246.0.0/15", "10.248.0.0/13"), "10.0.0.0/24"},
	} {
		got, err := pickSubnet(tc.id, tc.taken)
		if err != nil || got.String() != tc.want {
			t.Errorf("%s: got %s (%v), want %s", tc.name, got, err, tc.want)
		}
	}
	if _, err := pickSubnet("0a0b0000", prefixes("10.0.0.0/8")); err == nil || !strings.Contains(err.Error(), "ip route") {
		t.Errorf("a machine without a free subnet gives %v", err)
	}
}

func TestOptionsComplete(t *testing.T) {
	three := &State{Plan: newPlan(Options{DataDir: "/d", Nodes: 5, ControlPlanes: 3, APIPort: 7000, PodNetwork: "vxlan"}, RuntimeSimulated, netip.Prefix{})}
	last := &State{Plan: newPlan(Options{DataDir: "/d", Nodes: 5, APIPort: 7000, PodNetwork: "vxlan"}, RuntimeSimulated, netip.Prefix{})}
	for _, tc := range []struct {
		name string
		o    Options
		last *State
		want Options
		err  string
	}{
		{"a new cluster", Options{DataDir: "/d"}, nil, Options{DataDir: "/d", Nodes: 3, ControlPlanes: 1, Runtime: RuntimeAuto, APIPort: 6443, PodNetwork: "auto"}, ""},
		{"as it was", Options{DataDir: "/d"}, last, Options{DataDir: "/d", Nodes: 5, ControlPlanes: 1, Runtime: RuntimeSimulated, APIPort: 7000, PodNetwork: "vxlan"}, ""},
		{"changed", Options{DataDir: "/d", Nodes: 2, APIPort: 1, PodNetwork: "none"}, last, Options{DataDir: "/d", Nodes: 2, ControlPlanes: 1, Runtime: RuntimeSimulated, APIPort: 1, PodNetwork: "none"}, ""},
		{"three servers as before", Options{DataDir: "/d"}, three, Options{DataDir: "/d", Nodes: 5, ControlPlanes: 3, Runtime: RuntimeSimulated, APIPort: 7000, PodNetwork: "vxlan"}, ""},
		{"one becomes three", Options{DataDir: "/d", ControlPlanes: 3}, last, Options{DataDir: "/d", Nodes: 5, ControlPlanes: 3, Runtime: RuntimeSimulated, APIPort: 7000, PodNetwork: "vxlan"}, ""},
		{"fewer servers", Options{DataDir: "/d", ControlPlanes: 1}, three, Options{}, "--control-planes 3 or more"},
		{"two servers", Options{DataDir: "/d", ControlPlanes: 2}, nil, Options{}, "--control-planes 1, 3 or 5"},
		{"seven servers", Options{DataDir: "/d", ControlPlanes: 7}, nil, Options{}, "--control-planes 1, 3 or 5"},
		{"relative data dir", Options{DataDir: "d"}, nil, Options{}, "not an absolute path"},
		{"negative nodes", Options{DataDir: "/d", Nodes: -1}, nil, Options{}, "at least one"},
		{"unknown runtime", Options{DataDir: "/d", Runtime: "docker"}, nil, Options{}, "--runtime auto, containerd or simulated"},
		{"unknown pod network", Options{DataDir: "/d", PodNetwork: "ipip"}, nil, Options{}, "--pod-network auto, host-gw, vxlan, none"},
		{"no such port", Options{DataDir: "/d", APIPort: 70000}, nil, Options{}, "--api-port"},
	} {
		got, err := tc.o.complete(tc.last)
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.err)
		}
		if err == nil && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
	many := Options{DataDir: "/d", Nodes: 1000, Runtime: RuntimeAuto, APIPort: 1}
	if many.validateFor(RuntimeContainerd) == nil || many.validateFor(RuntimeSimulated) != nil {
		t.Error("1000 nodes must be refused with containers and allowed simulated")
	}
}

func TestChooseRuntime(t *testing.T) {
	able := Machine{Root: true, Containerd: "/c", ContainerdVersion: "1.6.20", Runc: "/r", Shim: "/s", Iptables: "/i", Nft: "/n", CNIBin: "/cni"}
	lacking := able
	lacking.Runc, lacking.CNIBin = "", ""
	plain := able
	plain.Root = false
	for _, tc := range []struct {
		name    string
		asked   Runtime
		machine Machine
		want    Runtime
		says    []string
	}{
		{"auto, able", RuntimeAuto, able, RuntimeContainerd, []string{"1.6.20", "--runtime simulated"}},
		{"auto, lacking", RuntimeAuto, lacking, RuntimeSimulated, []string{"lacks runc and the CNI plugins", "apt-get install"}},
		{"auto, no root", RuntimeAuto, plain, RuntimeSimulated, []string{"need root", "sudo"}},
		{"simulated", RuntimeSimulated, able, RuntimeSimulated, []string{"as asked", "--runtime containerd"}},
		{"containerd, able", RuntimeContainerd, able, RuntimeContainerd, []string{"as asked"}},
		{"containerd, lacking", RuntimeContainerd, lacking, "", []string{"needs runc and the CNI plugins", "apt-get install", "--runtime simulated"}},
		{"containerd, no root", RuntimeContainerd, plain, "", []string{"needs root", "sudo"}},
	} {
		choice, err := chooseRuntime(tc.asked, tc.machine)
		text := choice.Why
		if err != nil {
			text = err.Error()
		}
		if choice.Runtime != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: chose %q (%v), want %q", tc.name, choice.Runtime, err, tc.want)
		}
		for _, part := range tc.says {
			if !strings.Contains(text, part) {
				t.Errorf("%s: %q does not say %q", tc.name, text, part)
			}
		}
		if strings.Contains(text, "\n") {
			t.Errorf("%s: more than one line: %q", tc.name, text)
		}
	}
}

func TestParseContainerdVersion(t *testing.T) {
	for text, want := range map[string]string{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n": "1.6.20~ds1",
		"containerd github.com/containerd/containerd/v2 v2.0.1 abc":                     "2.0.1",
		"nonsense": "",
	} {
		if got := parseContainerdVersion(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestGoneNodes(t *testing.T) {
	subnet := netip.MustParsePrefix("10.9.8.0/24")
	three := newPlan(Options{DataDir: "/d", Nodes: 3}, RuntimeContainerd, subnet)
	two := newPlan(Options{DataDir: "/d", Nodes: 2}, RuntimeContainerd, subnet)
	if gone := goneNodes(three, two); len(gone) != 1 || gone[0] != "node-3" {
		t.Errorf("from three to two nodes %v are gone", gone)
	}
	if gone := goneNodes(two, three); len(gone) != 0 {
		t.Errorf("from two to three nodes %v are gone", gone)
	}
}

func TestParseListener(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0
   1: 0100007F:1F90 0100007F:192B 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0
`
	if got := parseListener(table, 6443); got != "4711" {
		t.Errorf("the listener of 6443 is %q", got)
	}
	if got := parseListener(table, 8080); got != "" {
		t.Errorf("a connected socket counts as listener: %q", got)
	}
}
