package local

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/wholefile"
)

func testState(dir string) State {
	p := newPlan(Options{DataDir: dir, Nodes: 2, APIPort: 6443}, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	return State{
		Version: stateVersion, Phase: PhaseReady, Plan: p, BootID: "boot-1",
		Server: Process{10, 100}, Nodes: map[string]NodeState{
			"node-1": {Init: Process{11, 101}}, "node-2": {Init: Process{12, 102}},
		},
	}
}

func TestStateSurvivesAFile(t *testing.T) {
	dir := t.TempDir()
	if s, err := loadState(dir); s != nil || err != nil {
		t.Fatalf("without a file: %v, %v", s, err)
	}
	l := &ledger{state: testState(dir)}
	if err := l.updateNode("node-1", func(n *NodeState) { n.Agent = Process{13, 103} }); err != nil {
		t.Fatal(err)
	}
	got, err := loadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Nodes["node-1"] != (NodeState{Init: Process{11, 101}, Agent: Process{13, 103}}) || got.Plan.Subnet.String() != "10.9.8.0/24" {
		t.Errorf("read back %+v", got)
	}
	info, err := os.Stat(statePath(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is readable for others: %v, %v", info.Mode(), err)
	}
}

func TestBrokenStateIsReportedAndKept(t *testing.T) {
	dir := t.TempDir()
	valid := testState(dir)
	if err := valid.save(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(statePath(dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty":           "",
		"cut off":         string(whole[:len(whole)/2]),
		"another version": strings.Replace(string(whole), `"version": 1`, `"version": 9`, 1),
		"unknown phase":   strings.Replace(string(whole), `"ready"`, `"dancing"`, 1),
		"another id":      strings.Replace(string(whole), valid.Plan.ID, "00000000", 1),
		"moved":           strings.Replace(strings.Replace(string(whole), dir, "/elsewhere", 1), valid.Plan.ID, clusterID("/elsewhere"), 1),
	} {
		if err := os.WriteFile(statePath(dir), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := loadState(dir)
		if err == nil || !strings.Contains(err.Error(), statePath(dir)) || !strings.Contains(err.Error(), "repair it") {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadFile(statePath(dir)); string(left) != content {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestLockIsExclusive(t *testing.T) {
	dir := t.TempDir()
	first, err := acquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acquireLock(dir); !errors.Is(err, errLocked) {
		t.Errorf("a second one gets %v", err)
	}
	first.release()
	again, err := acquireLock(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	again.release()
}

func kinds(removals []Removal) string {
	var all []string
	for _, r := range removals {
		all = append(all, string(r.Kind)+" "+r.Name)
	}
	return strings.Join(all, "; ")
}

func TestPlanTakingBack(t *testing.T) {
	changes := HostChanges{Dirs: []string{"/run/netns", "/etc/cni"}, Forwarding: true}
	for _, tc := range []struct {
		name  string
		links []string
		want  string
	}{
		{"the last cluster", nil, "IPv4 forwarding net.ipv4.ip_forward; folder /etc/cni; folder /run/netns"},
		{"its own link does not count", []string{"evn-a"}, "IPv4 forwarding net.ipv4.ip_forward; folder /etc/cni; folder /run/netns"},
		{"another cluster needs all of it", []string{"evn-a", "evn-b"}, ""},
	} {
		if got := kinds(planTakingBack("evn-a", tc.links, changes)); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

func TestPlanRemoval(t *testing.T) {
	s := testState("/d")
	id := s.Plan.ID
	running := map[Process]bool{s.Server: true, {11, 101}: true}
	for _, tc := range []struct {
		name   string
		o      Observed
		change func(*State)
		want   string
	}{
		{
			"everything, processes first", Observed{
				BootID: "boot-1", Alive: running, Strays: []Process{{11, 101}, {99, 9}},
				Netns: []string{"everynode-" + id, "everynode-" + id + "-node-1"}, HostLink: true, Cgroups: []string{"/cg"},
			}, nil,
			"process node-1; server server; process stray; network namespace everynode-" + id + "-node-1; network namespace everynode-" + id +
				"; host link evn" + id + "; nftables table everynode-" + id + "; cgroup /cg",
		},
		{
			"after a restart of the machine the numbers are other processes'", Observed{BootID: "boot-2", Alive: running}, nil, "",
		},
		{
			"simulated nodes leave a server at most", Observed{BootID: "boot-1", Alive: running},
			func(s *State) { s.Plan.Runtime, s.Nodes = RuntimeSimulated, nil },
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

func TestParseStat(t *testing.T) {
	tail := " 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 10"
	for _, tc := range []struct {
		name, stat string
		parent     int
		start      uint64
		running    bool
		fails      bool
	}{
		{"sleeping", "7 (pause) S 5" + tail, 5, 4242, true, false},
		{"a name with all sorts", "7 (a) S 9 (b) R 5" + tail, 5, 4242, true, false},
		{"zombie", "7 (pause) Z 5" + tail, 5, 4242, false, false},
		{"exec in a program of several threads", "7 (everynode) Z 5" + strings.Replace(tail, " 20 0 1 0 ", " 20 0 2 0 ", 1), 5, 4242, true, false},
		{"cut off", "7 (pause) S 5", 0, 0, false, true},
		{"nonsense", "", 0, 0, false, true},
	} {
		parent, start, running, err := parseStat(tc.stat)
		if parent != tc.parent || start != tc.start || running != tc.running || (err != nil) != tc.fails {
			t.Errorf("%s: got %d %d %v %v", tc.name, parent, start, running, err)
		}
	}
}

func TestProcessIdentity(t *testing.T) {
	self, err := identify(os.Getpid())
	if err != nil || !self.alive() {
		t.Fatalf("this process is not alive: %v, %v", self, err)
	}
	other := Process{PID: self.PID, Start: self.Start + 1}
	if other.alive() {
		t.Error("a process with the same number and another start is taken for this one")
	}
	if err := other.kill(t.Context()); err != nil {
		t.Errorf("a process that has ended: %v", err) // and this test goes on
	}
}

func TestNextPause(t *testing.T) {
	var pause time.Duration
	var got []time.Duration
	for range 7 {
		pause = nextPause(pause, time.Second)
		got = append(got, pause)
	}
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30}
	for i := range want {
		if got[i] != want[i]*time.Second {
			t.Fatalf("pauses are %v, want %v seconds", got, want)
		}
	}
	if p := nextPause(30*time.Second, time.Hour); p != firstPause {
		t.Errorf("after a good life the pause is %s", p)
	}
}

func TestContainersOf(t *testing.T) {
	all := []relative{
		{Process{1, 1}, 0, "systemd"},
		{Process{50, 1}, 40, "pause"}, // the node's process 1
		{Process{60, 1}, 50, "containerd-shim"},
		{Process{61, 1}, 60, "pause"},
		{Process{62, 1}, 60, "demo"},
		{Process{63, 1}, 62, "demo"},
		{Process{70, 1}, 1, "containerd-shim"}, // of the host's own containerd
		{Process{71, 1}, 70, "postgres"},
	}
	if got := containersOf(50, all); len(got) != 1 || got[0].PID != 62 {
		t.Errorf("the node's containers are %v, want process 62", got)
	}
}

func TestRemoveDataLeavesWhatIsNotTheClusters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, name := range []string{"etcd/db", "version.json", ".backup-12345/etcd/db", "restore-unfinished/x", "encryption.yaml", wholefile.Unfinished("encryption.yaml") + "12345", "nodes/node-1/log/x", "local.json", "kubeconfig", ".kubeconfig.12345", wholefile.Unfinished("local.json") + "12345", "precious"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeData(dir); err == nil || !strings.Contains(err.Error(), "not of the cluster") {
		t.Errorf("a folder with more than the cluster: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "precious" {
		t.Errorf("left are %v (%v)", entries, err)
	}
	if err := os.Remove(filepath.Join(dir, "precious")); err != nil {
		t.Fatal(err)
	}
	if err := removeData(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
