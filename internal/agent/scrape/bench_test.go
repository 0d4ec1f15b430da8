package scrape

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	agentcgroups "github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri"
)

// BenchmarkContainers reads the metrics of a hundred pods, all of which have the cgroup of the whole machine.
func BenchmarkContainers(b *testing.B) {
	var groups []cri.Group
	for i := range 100 {
		pod := cri.Group{PodUID: "u", Namespace: "default", Pod: fmt.Sprintf("pod-%d", i), Cgroup: "/", PodCgroup: fmt.Sprintf("/%*s", i, ""), StartedAt: time.Unix(1, 0), HostNetwork: true}
		container := pod
		container.Container, container.Image, container.ID = "main", "everynode.io/demo:v1", "0af90af90af90af90af90af90af90af90af90af90af90af9"
		groups = append(groups, pod, container)
	}
	machine, err := agentcgroups.New(agentcgroups.Config{Node: "n"})
	if err != nil {
		b.Fatal(err)
	}
	p := New(Config{
		Measure: machine.Measure, Processes: machine.ProcessesIn,
		Groups:  func(context.Context) ([]cri.Group, error) { return groups, nil },
		Layers:  func(context.Context) (map[string]int64, error) { return nil, nil },
		Machine: func() (Machine, error) { return Machine{}, nil },
	})
	page := p.Handlers()["/metrics/cadvisor"]
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		page.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
