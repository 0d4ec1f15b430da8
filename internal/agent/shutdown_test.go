package agent

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

func TestShutdownEndsCriticalPodsLast(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	ordinary, critical := boxPod("ordinary"), boxPod("critical")
	critical.Spec.Priority = ptr(int32(2000001000))
	a.create(ordinary)
	a.create(critical)
	a.watch(p)
	p.RuntimeListed(nil)
	for _, pod := range []*corev1.Pod{ordinary, critical} {
		a.await(t, pod.UID, "to be ready", isReady)
	}
	for len(r.done) > 0 {
		<-r.done
	}
	announced := false
	s := &shutdown{grace: 2 * time.Minute, critical: time.Minute, pods: p, clock: clock.RealClock{},
		announce: func() { announced = true }, reported: func() bool { return true }}
	s.run(t.Context())
	if !announced {
		t.Error("the node did not say that it shuts down")
	}
	for _, pod := range []*corev1.Pod{ordinary, critical} {
		got := a.await(t, pod.UID, "to have ended", hasPhase(corev1.PodFailed))
		if got.Status.Reason != "Terminated" || got.Status.Message != "Pod was terminated in response to imminent node shutdown." {
			t.Errorf("%s ended with %q, %q", pod.Name, got.Status.Reason, got.Status.Message)
		}
	}
	r.await(t, "kill uid-ordinary-main-0")
	var order []string
	for len(r.done) > 0 {
		order = append(order, <-r.done)
	}
	killed := -1
	for i, call := range order {
		if call == "kill uid-critical-main-0" {
			killed = i
		}
	}
	if killed < 0 {
		t.Errorf("after the ordinary pod the runtime was asked for %q, want the end of the critical one", order)
	}
	late := boxPod("late")
	a.create(late)
	if got := a.await(t, late.UID, "to be refused", hasPhase(corev1.PodFailed)); got.Status.Reason != "NodeShutdown" {
		t.Errorf("a pod that comes late: %q, %q", got.Status.Reason, got.Status.Message)
	}
}

func TestShutdownDoesNotWaitForEver(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	pod := boxPod("stubborn")
	a.create(pod)
	a.watch(p)
	p.RuntimeListed(nil)
	a.await(t, pod.UID, "to be ready", isReady)
	// Nobody hears that it ended: it keeps its room.
	p.mu.Lock()
	p.admitted["ghost"] = boxPod("ghost")
	p.mu.Unlock()
	s := &shutdown{grace: time.Millisecond, pods: p, clock: clock.RealClock{}, announce: func() {}, reported: func() bool { return true }}
	s.run(t.Context())
}
