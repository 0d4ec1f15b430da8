package webhook

import (
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestAlertsAreAboutMetricsThatAre: a rule about a metric that is called otherwise would never fire.
func TestAlertsAreAboutMetricsThatAre(t *testing.T) {
	rules, err := os.ReadFile("../../../examples/rollout-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	m.wrong.WithLabelValues("kube-system", "log-agent").Set(1)
	m.answers.WithLabelValues("pod", "own").Inc()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, f := range families {
		has[f.GetName()] = true
	}
	named := regexp.MustCompile(`everynode_beside_\w+`).FindAllString(string(rules), -1)
	if len(named) == 0 {
		t.Fatal("the rules name no metric of the webhook")
	}
	for _, name := range named {
		if !has[name] {
			t.Errorf("there is no metric %s; there are %v", name, has)
		}
	}
}
