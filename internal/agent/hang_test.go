package agent

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/probes"
)

// hangs has probes whose command does not end: the container is unready, and then has failed its liveness probe.
func (s stories) hangs(t *testing.T) {
	pod := podstest.Pod("hangs", "sleep")
	s.Create(pod)
	got := s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	_, id, _ := strings.Cut(got.Status.ContainerStatuses[0].ContainerID, "://")
	probed := pod.DeepCopy()
	hanging := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/box",
		"stubborn"}}},
		TimeoutSeconds: 1, PeriodSeconds: 1, FailureThreshold: 2, SuccessThreshold: 1}
	probed.Spec.Containers[0].LivenessProbe, probed.Spec.Containers[0].ReadinessProbe = hanging, hanging
	changed := make(chan struct{}, 1)
	manager := probes.New(probes.Config{
		Exec: s.node.runtime.ExecSync, OnEvent: events.Recorder{EventRecorder: s.API}.Container, Clock: clock.RealClock{},
		OnChange: func(types.UID) {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	defer manager.Remove(pod.UID)
	manager.Add(probed, "", "main", id, got.Status.ContainerStatuses[0].State.Running.StartedAt.Time)
	ctx, cancel := context.WithTimeout(t.Context(), podstest.Patience)
	defer cancel()
	for !manager.State(pod.UID)["main"].LivenessFailed {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the probes say %+v. Events:\n%s", manager.State(pod.UID), s.Log())
		}
	}
	s.AwaitEvent(t, `hangs: Warning Unhealthy spec.containers{main} Liveness probe failed: command timed out: "/box stubborn" timed out after 1s`)
	s.AwaitEvent(t, `hangs: Warning Unhealthy spec.containers{main} Readiness probe failed: command timed out: "/box stubborn" timed out after 1s`)
	s.end(t, pod, 1)
}

// serves is asked whether it is ready while it stops, for as long as it runs.
func (s stories) serves(t *testing.T) {
	pod := podstest.Pod("serves", "stubborn")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to run", podstest.HasPhase(corev1.PodRunning))
	_, id, _ := strings.Cut(got.Status.ContainerStatuses[0].ContainerID, "://")
	says := func(ready bool) {
		s.node.prober.Set(pod.UID, podworker.Probe{Container: "main", ContainerID: id, Known: true, Started: true,
			Ready: ready})
		s.node.pods.ProbeChanged(pod.UID)
	}
	says(true)
	s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	// Running says that the process exists; until it has come to ignore the signal, the signal ends it.
	awaitFile(t, filepath.Join(s.dir, "log/pods/default_serves_uid-serves/main/0.log"), "deaf")
	s.MarkDeleted(pod.UID, 60)
	podstest.Eventually(t, "only its readiness is probed", func() bool { return s.node.prober.Keeps(pod.UID) })
	if got := s.Get(pod.UID); !podstest.IsReady(got) {
		t.Errorf("it serves, and is not ready: %+v", got.Status.Conditions)
	}
	says(false)
	got = s.Await(t, pod.UID, "to be unready while it runs",
		func(p *corev1.Pod) bool { return p != nil && !podstest.IsReady(p) })
	if state := got.Status.ContainerStatuses[0].State; state.Running == nil {
		t.Errorf("it is %+v, want it running", state)
	}
	s.MarkDeleted(pod.UID, 1)
	s.Await(t, pod.UID, "to be gone", podstest.IsGone)
}
