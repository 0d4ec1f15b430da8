package agent

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

func addDebugger(name, target string, args ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Generation++
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
			TargetContainerName: target,
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: podstest.BoxImage, Args: args,
				ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePolicy: corev1.TerminationMessageReadFile},
		})
	}
}

func debuggerOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range p.Status.EphemeralContainerStatuses {
		if s := &p.Status.EphemeralContainerStatuses[i]; s.Name == name {
			return s
		}
	}
	return &corev1.ContainerStatus{}
}

// debugged adds containers to a pod that runs: one that looks at the processes of another container, one that ends, and
// one whose target is not there.
func (s stories) debugged(t *testing.T) {
	pod := podstest.Pod("debugged", "sleep")
	s.Create(pod)
	first := s.Await(t, pod.UID, "to be ready", podstest.IsReady)
	s.Update(pod.UID, addDebugger("looks", "main", "cat", "/proc/1/cmdline"))
	s.Await(t, pod.UID, "to have looked at the other container", func(p *corev1.Pod) bool {
		return debuggerOf(p, "looks").State.Terminated != nil
	})
	log := filepath.Join(s.dir, "log/pods/default_debugged_uid-debugged/looks/0.log")
	awaitFile(t, log, "/box\x00sleep")
	s.Update(pod.UID, addDebugger("fails", "", "exit", "3"))
	got := s.Await(t, pod.UID, "to have had a debugger that fails", func(p *corev1.Pod) bool {
		return debuggerOf(p, "fails").State.Terminated != nil
	})
	if end := debuggerOf(got, "fails").State.Terminated; end.ExitCode != 3 {
		t.Errorf("the debugger ended with %+v, want the exit code 3", end)
	}
	s.Update(pod.UID, addDebugger("stays", "main", "sleep"))
	s.Update(pod.UID, addDebugger("lost", "first", "sleep"))
	got = s.Await(t, pod.UID, "to have a debugger that stays, and one without a target", func(p *corev1.Pod) bool {
		w := debuggerOf(p, "lost").State.Waiting
		return debuggerOf(p, "stays").State.Running != nil && w != nil && w.Reason == "CreateContainerConfigError"
	})
	if w := debuggerOf(got, "lost").State.Waiting; w.Message != `unable to find target container "first"` {
		t.Errorf("the debugger without a target waits: %q", w.Message)
	}
	for _, name := range []string{"looks", "fails", "stays"} {
		if d := debuggerOf(got, name); d.RestartCount != 0 || d.Ready || d.Started != nil ||
			!strings.HasPrefix(d.ContainerID, "containerd://") {
			t.Errorf("the status of %s is %+v, want one life, and no word of being ready", name, d)
		}
	}
	if now := got.Status.ContainerStatuses[0]; now.ContainerID != first.Status.ContainerStatuses[0].ContainerID ||
		!now.Ready || !podstest.IsReady(got) {
		t.Errorf("the pod's own container changed: %+v", now)
	}
	s.AwaitEvent(t, "debugged: Normal Started spec.ephemeralContainers{stays} Started container stays")
	s.end(t, pod, 5)
}
func (s stories) windows(t *testing.T) {
	pod := podstest.Pod("windows", "sleep")
	pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	s.Create(pod)
	got := s.Await(t, pod.UID, "to be refused", podstest.HasPhase(corev1.PodFailed))
	if got.Status.Reason != "PodOSNotSupported" || len(got.Status.ContainerStatuses) > 0 {
		t.Errorf("status %+v, want a refusal for its system and no container", got.Status)
	}
	s.Drop(pod.UID)
}
