package measure

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

func TestSummary(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	pod := podstest.Pod("p")
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "stopped"})
	measured := 0
	s := &Summarizer{
		NodeName: "n1", Clock: clk, Pods: func() []*corev1.Pod { return []*corev1.Pod{pod} },
		UIDOf:   func(p *corev1.Pod) types.UID { return p.UID },
		Machine: func() (time.Duration, int64, error) { return 2 * clk.Since(time.Unix(0, 0)), 7 << 20, nil },
		Stats: func(context.Context, types.UID) ([]cri.ContainerStats, error) {
			measured++
			return []cri.ContainerStats{{PodUID: pod.UID, Container: "main", Time: clk.Now(),
				CPU: clk.Since(time.Unix(0, 0)) / 4, Memory: 3 << 20},
				{PodUID: "another", Container: "main", Time: clk.Now()}}, nil
		},
	}
	// At first there is nothing to compare with, so it measures, waits and measures again.
	go func() {
		for !clk.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clk.Step(time.Second)
	}()
	got, err := s.Summary(t.Context())
	podstest.Must(t, err)
	if got.Node.CPU == nil || got.Node.CPU.UsageNanoCores != 2e9 || got.Node.Memory.WorkingSetBytes != 7<<20 ||
		measured != 2 {
		t.Errorf("the node after %d measurements: %+v, %+v; want two cores and 7 MiB after two", measured, got.Node.CPU,
			got.Node.Memory)
	}
	if len(got.Pods) != 1 || len(got.Pods[0].Containers) != 1 || got.Pods[0].Containers[0].Name != "main" {
		t.Fatalf("pods %+v, want the one container that runs", got.Pods)
	}
	if c := got.Pods[0].Containers[0]; c.CPU.UsageNanoCores != 25e7 || c.Memory.WorkingSetBytes != 3<<20 {
		t.Errorf("the container: %+v, %+v", c.CPU, c.Memory)
	}
	// The next one takes the time since then.
	clk.Step(20 * time.Second)
	got, err = s.Summary(t.Context())
	podstest.Must(t, err)
	if measured != 3 || got.Node.CPU.Window.Duration != 20*time.Second {
		t.Errorf("%d measurements, window %s; want one more, over 20s", measured, got.Node.CPU.Window.Duration)
	}
}
