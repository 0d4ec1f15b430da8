package remains

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/process"
)

func kinds(removals []Removal) string {
	var all []string
	for _, r := range removals {
		all = append(all, string(r.Kind)+" "+r.Name)
	}
	return strings.Join(all, "; ")
}

func TestPlanTakingBack(t *testing.T) {
	changes := machine.HostChanges{Dirs: []string{"/run/netns", "/etc/cni"}, Forwarding: true}
	for _, tc := range []struct {
		name  string
		links []string
		want  string
	}{
		{"the last cluster", nil, "IPv4 forwarding net.ipv4.ip_forward; folder /etc/cni; folder /run/netns"},
		{"its own link does not count", []string{"evn-a"},
			"IPv4 forwarding net.ipv4.ip_forward; folder /etc/cni; folder /run/netns"},
		{"another cluster needs all of it", []string{"evn-a", "evn-b"}, ""},
	} {
		if got := kinds(planTakingBack("evn-a", tc.links, changes)); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

func TestPlanRemoval(t *testing.T) {
	p := layout.New(layout.Options{DataDir: "/d", Nodes: 2, APIPort: 6443}, layout.RuntimeContainerd,
		netip.MustParsePrefix("10.9.8.0/24"))
	s := layout.State{Plan: p, BootID: "boot-1", Server: process.Process{10, 100}, Nodes: map[string]layout.NodeState{
		"node-1": {Init: process.Process{11, 101}}, "node-2": {Init: process.Process{12, 102}},
	}}
	id := s.Plan.ID
	running := map[process.Process]bool{s.Server: true, {11, 101}: true}
	for _, tc := range []struct {
		name   string
		o      Observed
		change func(*layout.State)
		want   string
	}{
		{
			"everything, processes first", Observed{
				BootID: "boot-1", Alive: running, Strays: []process.Process{{11, 101}, {99, 9}},
				Netns: []string{"everynode-" + id, "everynode-" + id + "-node-1"}, HostLink: true, Cgroups: []string{"/cg"},
			}, nil,
			"process node-1; server server; process stray; network namespace everynode-" + id + "-node-1; network namespace everynode-" + id +
				"; host link evn" + id + "; nftables table everynode-" + id + "; cgroup /cg",
		},
		{
			"after a restart of the machine the numbers are other processes'", Observed{BootID: "boot-2",
				Alive: running}, nil, "",
		},
		{
			"simulated nodes leave a server at most", Observed{BootID: "boot-1", Alive: running},
			func(s *layout.State) { s.Plan.Runtime, s.Nodes = layout.RuntimeSimulated, nil },
			"server server",
		},
	} {
		state := s
		if tc.change != nil {
			tc.change(&state)
		}
		if got := kinds(planRemoval(state, tc.o)); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}
