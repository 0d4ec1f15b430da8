package podworker

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func podOf(restart corev1.RestartPolicy) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "p", "ns", "u"
	pod.Spec.RestartPolicy = restart
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "x"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "x"}}
	return pod
}

// steps decides so often, a second after each other, and reports whether the container runs in the end. Init containers succeed.
func (w *world) steps(t *testing.T, times int, container string) bool {
	t.Helper()
	for range times {
		for _, a := range w.step().Actions {
			if a.Kind == Announce {
				t.Errorf("at %s: %s", w.now.Format(time.RFC3339), a)
			}
		}
		for _, c := range w.runtime.Containers {
			if c.State == Running && c.Name == "init" {
				w.exit(c.ID, 0)
			}
		}
		w.now = w.now.Add(time.Second)
	}
	for _, c := range w.runtime.Containers {
		if c.State == Running && c.Name == container {
			return true
		}
	}
	return false
}

// A machine whose clock is behind, because it was switched on without a clock of its own and without NTP, starts what ended before.
func TestClockBehindAfterAReboot(t *testing.T) {
	for _, back := range []time.Duration{time.Second, time.Hour, 24 * 365 * time.Hour} {
		w := newWorld(podOf(corev1.RestartPolicyAlways))
		if !w.steps(t, 20, "main") {
			t.Fatal("the pod does not start at all")
		}
		w.exit("main-0", 1)
		w.memory = Memory{}
		w.runtime.Sandboxes[0].Ready = false
		w.now = w.now.Add(-back)
		if back > 24*time.Hour {
			w.now = time.Unix(30, 0)
		}
		if !w.steps(t, 20, "main") {
			t.Errorf("a clock that is %s behind: after 20 s nothing runs: %+v", back, w.runtime.Containers)
		}
	}
}

// A clock that is set back while a container waits lets it start when its wait is over.
func TestClockSetBackDuringABackOff(t *testing.T) {
	w := newWorld(podOf(corev1.RestartPolicyAlways))
	if !w.steps(t, 20, "main") {
		t.Fatal("the pod does not start at all")
	}
	w.exit("main-0", 1)
	for range 10 { // The first restart needs no wait, the second one does.
		w.step()
	}
	w.exit("main-1", 1)
	w.now = w.now.AddDate(-1, 0, 0)
	deadline := w.now.Add(2 * backOffMax)
	for w.now.Before(deadline) {
		w.step()
		for _, c := range w.runtime.Containers {
			if c.State == Running && c.Name == "main" {
				return
			}
		}
		w.now = w.now.Add(10 * time.Second)
	}
	t.Errorf("after %s nothing runs: %+v", 2*backOffMax, w.runtime.Containers)
}
