package agent

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/probes"
)

// hangs has probes whose command does not end: the container is unready, and then has failed its liveness probe.
func (s stories) hangs(t *testing.T) {
	pod := boxPod("hangs", "sleep")
	s.create(pod)
	got := s.await(t, pod.UID, "to be ready", isReady)
	_, id, _ := strings.Cut(got.Status.ContainerStatuses[0].ContainerID, "://")
	probed := pod.DeepCopy()
	hanging := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/box", "stubborn"}}},
		TimeoutSeconds: 1, PeriodSeconds: 1, FailureThreshold: 2, SuccessThreshold: 1}
	probed.Spec.Containers[0].LivenessProbe, probed.Spec.Containers[0].ReadinessProbe = hanging, hanging
	changed := make(chan struct{}, 1)
	manager := probes.New(probes.Config{
		Exec: s.node.pods.runtime.ExecSync, OnEvent: events{recorder: s.api}.container, Clock: clock.RealClock{},
		OnChange: func(types.UID) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	defer manager.Remove(pod.UID)
	manager.Add(probed, "", "main", id, got.Status.ContainerStatuses[0].State.Running.StartedAt.Time)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !manager.State(pod.UID)["main"].LivenessFailed {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the probes say %+v. Events:\n%s", manager.State(pod.UID), s.log())
		}
	}
	s.awaitEvent(t, `hangs: Warning Unhealthy spec.containers{main} Liveness probe failed: command timed out: "/box stubborn" timed out after 1s`)
	s.awaitEvent(t, `hangs: Warning Unhealthy spec.containers{main} Readiness probe failed: command timed out: "/box stubborn" timed out after 1s`)
	s.end(t, pod, 1)
}
