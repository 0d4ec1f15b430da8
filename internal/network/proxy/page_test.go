package proxy

import (
	"os"
	"regexp"
	"testing"
)

// TestMetricsPage: what the page of all metrics says of the proxy is there.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := newMetrics().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range families {
		have[f.GetName()] = true
	}
	named := regexp.MustCompile("`(kubeproxy_[a-z_]+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 4 {
		t.Fatalf("the page names %d metrics of the proxy", len(named))
	}
	for _, n := range named {
		if !have[n[1]] {
			t.Errorf("the page names %s, which the proxy does not have", n[1])
		}
	}
}
