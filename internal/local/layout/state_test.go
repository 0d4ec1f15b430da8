package layout

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/local/process"
)

func testState(dir string) State {
	p := New(Options{DataDir: dir, Nodes: 2, APIPort: 6443}, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	return State{
		Version: StateVersion, Phase: PhaseReady, Plan: p, BootID: "boot-1",
		Server: process.Process{10, 100}, Nodes: map[string]NodeState{
			"node-1": {Init: process.Process{11, 101}}, "node-2": {Init: process.Process{12, 102}},
		},
	}
}

func TestStateSurvivesAFile(t *testing.T) {
	dir := t.TempDir()
	if s, err := Load(dir); s != nil || err != nil {
		t.Fatalf("without a file: %v, %v", s, err)
	}
	l := &Ledger{State: testState(dir)}
	if err := l.UpdateNode("node-1", func(n *NodeState) { n.Agent = process.Process{13, 103} }); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Nodes["node-1"] != (NodeState{Init: process.Process{11, 101}, Agent: process.Process{13, 103}}) ||
		got.Plan.Subnet.String() != "10.9.8.0/24" {
		t.Errorf("read back %+v", got)
	}
	info, err := os.Stat(StatePath(dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is readable for others: %v, %v", info.Mode(), err)
	}
}

func TestBrokenStateIsReportedAndKept(t *testing.T) {
	dir := t.TempDir()
	valid := testState(dir)
	if err := valid.Save(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(StatePath(dir))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty":           "",
		"cut off":         string(whole[:len(whole)/2]),
		"another version": strings.Replace(string(whole), `"version": 1`, `"version": 9`, 1),
		"unknown phase":   strings.Replace(string(whole), `"ready"`, `"dancing"`, 1),
		"another id":      strings.Replace(string(whole), valid.Plan.ID, "00000000", 1),
		"moved": strings.Replace(strings.Replace(string(whole), dir, "/elsewhere", 1), valid.Plan.ID,
			ClusterID("/elsewhere"), 1),
	} {
		if err := os.WriteFile(StatePath(dir), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(dir)
		if err == nil || !strings.Contains(err.Error(), StatePath(dir)) || !strings.Contains(err.Error(), "repair it") {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadFile(StatePath(dir)); string(left) != content {
			t.Errorf("%s: the file was changed", name)
		}
	}
}
