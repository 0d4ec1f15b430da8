package local

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestProgressThroughAPipe(t *testing.T) {
	r, w := io.Pipe()
	report := ReportTo(w)
	broken := errors.New("broken")
	go func() {
		_ = report.step("good", func() (string, error) { return "text", nil })
		_ = report.step("bad", func() (string, error) { return "", broken })
		_ = w.Close()
	}()
	var got []string
	err := ReadReport(r, func(e Event) error {
		got = append(got, string(e.Kind)+" "+e.Step+" "+e.Text)
		return nil
	})
	want := "begin good |done good text|begin bad |failed bad "
	if strings.Join(got, "|") != want || err != nil {
		t.Errorf("got %q (%v), want %q", strings.Join(got, "|"), err, want)
	}
}

func TestScreen(t *testing.T) {
	events := []Event{
		{Kind: EventNote, Text: "A new cluster"},
		{Kind: EventBegin, Step: "network"},
		{Kind: EventDone, Step: "network", Text: "10.9.8.0/24", Took: 1500 * time.Millisecond},
		{Kind: EventBegin, Step: "nodes"},
		{Kind: EventFailed, Step: "nodes", Took: time.Second},
	}
	show := func(terminal bool) string {
		var b bytes.Buffer
		s := NewScreen(&b, terminal)
		for _, e := range events {
			s.Report(e)
		}
		s.Close()
		return b.String()
	}
	lines := strings.Split(strings.TrimSpace(show(false)), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	if got, want := strings.Join(lines, "|"), "A new cluster|✓ network 10.9.8.0/24 1.5s|✗ nodes failed 1.0s"; got != want {
		t.Errorf("plain output is %q, want %q", got, want)
	}
	if plain := show(false); strings.ContainsAny(plain, "\r\x1b") {
		t.Errorf("plain output has terminal codes: %q", plain)
	}
	if got := show(true); !strings.Contains(got, "… network") || strings.HasSuffix(got, ")") {
		t.Errorf("terminal output shows no running step, or leaves one: %q", got)
	}
}

func TestReadyNodes(t *testing.T) {
	p := newPlan(Options{DataDir: "/d", Nodes: 10}, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
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
	p := newPlan(Options{DataDir: "/d", Nodes: 1, APIPort: 6443}, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	text := usage(p, Options{Program: "bin/everynode", DirFlag: " --data-dir /d"}, "")
	for _, want := range []string{
		"/d/kubeconfig", "bin/everynode kubectl --data-dir /d get nodes", "apply -f /d/examples/log-agent.yaml", "bin/everynode down --data-dir /d",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("usage lacks %q:\n%s", want, text)
		}
	}
}

func TestContainerdConfigAndRules(t *testing.T) {
	config := containerdConfig("pause:1", "native")
	for _, want := range []string{
		`sandbox_image = "pause:1"`, `snapshotter = "native"`, `bin_dir = "/opt/cni/bin"`, "restrict_oom_score_adj = true", "SystemdCgroup = false",
		`config_path = "/run/everynode/registries"`,
	} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration lacks %q", want)
		}
	}
	p := newPlan(Options{DataDir: "/d", Nodes: 1}, RuntimeContainerd, netip.MustParsePrefix("10.9.8.0/24"))
	if rules := natRules(p); !strings.Contains(rules, `ip saddr 10.9.8.0/24 oifname != "`+p.HostLink()+`" masquerade`) {
		t.Errorf("the rules are\n%s", rules)
	}
}

func TestImportTargets(t *testing.T) {
	s := testState("/d")
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
