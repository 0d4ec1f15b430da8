package scrape

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What was counted of a pod goes with it: a node that lives long has seen many pods.
func TestProbesOfGonePods(t *testing.T) {
	p := New(Config{NodeName: "n1"})
	show := func() string {
		recorder := httptest.NewRecorder()
		p.Handlers()["/metrics/probes"].ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics/probes", nil))
		return recorder.Body.String()
	}
	p.Probed("Liveness", "successful", "main", "a", "ns", "uid-a", time.Second)
	p.Probed("Liveness", "failed", "main", "b", "ns", "uid-b", time.Second)
	text := show()
	for _, want := range []string{
		`prober_probe_total{container="main",namespace="ns",pod="a",pod_uid="uid-a",probe_type="Liveness",result="successful"} 1`,
		`prober_probe_total{container="main",namespace="ns",pod="b",pod_uid="uid-b",probe_type="Liveness",result="failed"} 1`,
		`prober_probe_duration_seconds_sum{container="main",namespace="ns",pod="a",probe_type="Liveness"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %s:\n%s", want, text)
		}
	}
	p.Unprobed("uid-a")
	p.Unprobed("uid-a")
	if text = show(); strings.Contains(text, `pod="a"`) || !strings.Contains(text, `pod="b"`) {
		t.Errorf("after a is gone:\n%s", text)
	}
}
