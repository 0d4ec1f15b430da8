package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// counted returns the registered numbers as they are, histograms as their count
// and sum, one a line and sorted; what is zero is left out.
func (c *cluster) counted() string {
	c.t.Helper()
	families, err := c.metrics.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	var out strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			if h := m.GetHistogram(); h != nil {
				value = fmt.Sprintf("%d of %g", h.GetSampleCount(), h.GetSampleSum())
			}
			if value != "0" && value != "0 of 0" {
				fmt.Fprintf(&out, "%s{%s} %s\n", f.GetName(), strings.Join(labels, ","), value)
			}
		}
	}
	return out.String()
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "1", "1Gi"))
		c.lingering()
		failures := 1
		c.refuse = func(podName string) error {
			if podName == "unlucky" && failures > 0 {
				failures--
				return apierrors.NewInternalError(errors.New("disk"))
			}
			return nil
		}
		c.create(pod("low", requests("500m", "100Mi"), priority(1)))
		c.create(pod("unlucky", requests("100m", "100Mi"), priority(1)))
		time.Sleep(time.Second) // its back-off
		c.settle()
		c.expectOn("unlucky", "a")
		c.create(pod("big", requests("500m", "100Mi"), priority(100)))
		c.create(pod("huge", requests("64", "100Mi")))
		const want = `scheduler_pending_pods{queue=unschedulable} 2
scheduler_pod_scheduling_attempts{} 2 of 3
scheduler_pod_scheduling_sli_duration_seconds{attempts=2} 1 of 1
scheduler_preemption_attempts_total{} 1
scheduler_preemption_victims{} 1 of 1
scheduler_schedule_attempts_total{profile=default-scheduler,result=error} 1
scheduler_schedule_attempts_total{profile=default-scheduler,result=scheduled} 2
scheduler_schedule_attempts_total{profile=default-scheduler,result=unschedulable} 2
`
		// In this test's time nothing takes any, so other durations have a sum of 0.
		var got strings.Builder
		for line := range strings.Lines(c.counted()) {
			if !strings.HasSuffix(line, " of 0\n") {
				got.WriteString(line)
			}
		}
		if got.String() != want {
			t.Errorf("counted:\n%swant:\n%s", &got, want)
		}
		for _, once := range []string{"scheduler_scheduling_algorithm_duration_seconds{} 5 of 0", "scheduler_pod_scheduling_sli_duration_seconds{attempts=1} 1 of 0",
			"scheduler_scheduling_attempt_duration_seconds{profile=default-scheduler,result=scheduled} 2 of 0"} {
			if !strings.Contains(c.counted(), once) {
				t.Errorf("%q is not in\n%s", once, c.counted())
			}
		}
	})
}
