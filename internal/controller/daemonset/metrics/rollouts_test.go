package metrics

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/testenv/promtool"
)

const alertRules = "../../../../examples/rollout-alerts.yaml"

// TestAlertsAreAboutMetricsThatAre: a rule about a metric that is called otherwise would
// never fire.
func TestAlertsAreAboutMetricsThatAre(t *testing.T) {
	text, err := os.ReadFile(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	registry, m := prometheus.NewRegistry(), newRollouts()
	registry.MustRegister(m.collectors()...)
	a := &action.UpdateRollout{Target: action.Target{Namespace: "n", Name: "d"},
		Status: v1alpha1.DaemonSetRolloutStatus{
			Phase: v1alpha1.PhaseProgressing, Step: "s", Steps: []v1alpha1.StepStatus{{Name: "s", Nodes: 1}},
			Counts: map[string]int32{"Waiting": 1},
		}, Failing: map[standing.Reason]int{standing.BecauseLate: 1}}
	m.Show(a)
	a.Status.Phase, a.Status.StepStarted = v1alpha1.PhaseHalted, &metav1.Time{}
	m.Show(a)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, f := range families {
		for _, pair := range f.Metric[0].Label {
			labels[f.GetName()] = append(labels[f.GetName()], pair.GetName())
		}
	}
	named := regexp.MustCompile(`(everynode_\w+)(?:\{(\w+)=)?`).FindAllStringSubmatch(string(text), -1)
	if len(named) < 5 {
		t.Fatalf("the rules name only %d metrics", len(named))
	}
	for _, n := range named {
		if strings.HasPrefix(n[1], "everynode_beside_") {
			continue // of the webhook, whose test looks at them
		}
		switch has, known := labels[n[1]]; {
		case !known:
			t.Errorf("there is no metric %s; there are %v", n[1], labels)
		case n[2] != "" && !slices.Contains(has, n[2]):
			t.Errorf("%s has the labels %v, and not %s", n[1], has, n[2])
		}
	}
}

// TestAlerts plays times to the rules, with Prometheus' own tool.
func TestAlerts(t *testing.T) {
	tool := promtool.Find(t, "../../../..")
	for _, args := range [][]string{{"check", "rules", alertRules}, {"test", "rules", "testdata/alerts.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
