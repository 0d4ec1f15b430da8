package agent

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/podworker"
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

// serves is asked whether it is ready while it stops, for as long as it runs.
func (s stories) serves(t *testing.T) {
	pod := boxPod("serves", "stubborn")
	pod.Spec.TerminationGracePeriodSeconds = ptr(int64(60))
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	s.create(pod)
	got := s.await(t, pod.UID, "to run", hasPhase(corev1.PodRunning))
	_, id, _ := strings.Cut(got.Status.ContainerStatuses[0].ContainerID, "://")
	says := func(ready bool) {
		s.node.prober.set(pod.UID, podworker.Probe{Container: "main", ContainerID: id, Known: true, Started: true, Ready: ready})
		s.node.pods.probeChanged(pod.UID)
	}
	says(true)
	s.await(t, pod.UID, "to be ready", isReady)
	// Running says that the process exists; until it has come to ignore the signal, the signal ends it.
	awaitFile(t, filepath.Join(s.dir, "log/pods/default_serves_uid-serves/main/0.log"), "deaf")
	s.markDeleted(pod.UID, 60)
	eventually(t, "only its readiness is probed", func() bool { return s.node.prober.keeps(pod.UID) })
	if got := s.get(pod.UID); !isReady(got) {
		t.Errorf("it serves, and is not ready: %+v", got.Status.Conditions)
	}
	says(false)
	got = s.await(t, pod.UID, "to be unready while it runs", func(p *corev1.Pod) bool { return p != nil && !isReady(p) })
	if state := got.Status.ContainerStatuses[0].State; state.Running == nil {
		t.Errorf("it is %+v, want it running", state)
	}
	s.markDeleted(pod.UID, 1)
	s.await(t, pod.UID, "to be gone", isGone)
}
