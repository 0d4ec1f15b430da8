package local

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/local/layout"
)

func TestReadyNodes(t *testing.T) {
	p := layout.New(layout.Options{DataDir: "/d", Nodes: 10}, layout.RuntimeContainerd,
		netip.MustParsePrefix("10.9.8.0/24"))
	node := func(name string, ready corev1.ConditionStatus) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		}}
	}
	nodes := []corev1.Node{
		node("node-10", corev1.ConditionTrue), node("node-2", corev1.ConditionTrue),
		node("node-3", corev1.ConditionFalse), node("foreign", corev1.ConditionTrue),
	}
	begun := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	renewed := map[string]time.Time{"foreign": begun.Add(1)}
	for _, n := range []string{"node-10", "node-2", "node-3"} {
		renewed[n] = begun.Add(time.Second)
	}
	nodes = append(nodes, node("node-4", corev1.ConditionTrue)) // ready when the cluster ran last
	renewed["node-4"] = begun.Add(-time.Hour)
	var names []string
	for _, n := range readyNodes(p, nodes, renewed, begun) {
		names = append(names, n.Name)
	}
	if strings.Join(names, " ") != "node-2 node-10" {
		t.Errorf("ready are %v, want node-2 node-10", names)
	}
	table := nodesTable(readyNodes(p, nodes, renewed, begun))
	if !strings.HasPrefix(table, "NAME") || strings.Count(table, "\n") != 3 {
		t.Errorf("the table is\n%s", table)
	}
}

func TestUsageTellsWhatToType(t *testing.T) {
	p := layout.New(layout.Options{DataDir: "/d", Nodes: 1, APIPort: 6443}, layout.RuntimeContainerd,
		netip.MustParsePrefix("10.9.8.0/24"))
	text := usage(p, layout.Options{Program: "bin/everynode", DirFlag: " --data-dir /d"}, "")
	for _, want := range []string{
		"/d/kubeconfig", "bin/everynode kubectl --data-dir /d get nodes", "apply -f /d/examples/log-agent.yaml", "bin/everynode down --data-dir /d",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("usage lacks %q:\n%s", want, text)
		}
	}
}

func TestImportTargets(t *testing.T) {
	s := layout.State{Plan: layout.Plan{Nodes: []layout.Node{{Name: "node-1"}, {Name: "node-2"}}},
		Nodes: map[string]layout.NodeState{"node-1": {}, "node-2": {}}}
	all, err := importTargets(&s, nil)
	if err != nil || strings.Join(all, " ") != "node-1 node-2" {
		t.Errorf("without names: %v, %v", all, err)
	}
	if one, err := importTargets(&s, []string{"node-2"}); err != nil || len(one) != 1 {
		t.Errorf("with one name: %v, %v", one, err)
	}
	if _, err := importTargets(&s, []string{"node-9"}); err == nil {
		t.Error("an unknown node is accepted")
	}
}
