package scrape

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestMetricsPage: the page of all metrics lists those of an agent.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Nodes\n")
	if !ok {
		t.Fatal("the page says nothing of nodes")
	}
	p := New(Config{NodeName: "n1"})
	p.Probed("Readiness", "successful", "c", "p", "n", "u", time.Second)
	p.containers.WithLabelValues("running").Set(1)
	own, err := p.own.Gather()
	if err != nil {
		t.Fatal(err)
	}
	probes, err := p.probes.Gather()
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, family := range append(own, probes...) {
		name := family.GetName()
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		listed++
		kind := strings.ToLower(family.GetType().String())
		if row := "| `" + name + "` | " + kind + " | "; !strings.Contains(section, row) || !strings.Contains(section, " | "+family.GetHelp()+" |") {
			t.Errorf("the page does not list %s %s: %s", kind, name, family.GetHelp())
		}
	}
	if rows := strings.Count(section, "\n| `"); rows != listed {
		t.Errorf("the page lists %d metrics, the agent has %d", rows, listed)
	}
}
