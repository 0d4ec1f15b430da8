package agent

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/remember"
)

// TestBook: what makes a difference to the next start is noted, and what changes all the time is not.
func TestBook(t *testing.T) {
	notes := 0
	b := newBook(nil)
	b.note = func() { notes++ }
	pod := boxPod("p")
	change := func(f func(*corev1.Pod)) {
		pod = pod.DeepCopy()
		f(pod)
		b.seen(pod)
	}
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"a pod comes", func() { b.seen(pod) }, true},
		{"it is seen again", func() { b.seen(pod) }, false},
		{"its heartbeat", func() {
			change(func(p *corev1.Pod) {
				p.ResourceVersion, p.Status.ContainerStatuses = "7", []corev1.ContainerStatus{{RestartCount: 3}}
			})
		}, false},
		{"it runs", func() { change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }) }, true},
		{"its image changes", func() { change(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "x" }) }, true},
		{"its label changes", func() { change(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }) }, true},
		{"it is deleted", func() { change(func(p *corev1.Pod) { p.DeletionTimestamp = &p.CreationTimestamp }) }, true},
		{"it ends", func() { b.ended(pod.UID, &corev1.PodStatus{Phase: corev1.PodFailed}) }, true},
		{"it ended", func() { b.ended(pod.UID, &corev1.PodStatus{Phase: corev1.PodFailed}) }, false},
		{"somebody else ends", func() { b.ended("other", &corev1.PodStatus{Phase: corev1.PodFailed}) }, false},
	} {
		before := notes
		if step.do(); notes > before != step.want {
			t.Errorf("%s: it is noted: %t, want %t", step.what, notes > before, step.want)
		}
	}
	if list := b.list(); len(list) != 1 || list[0].Pod != pod || list[0].Ended == nil {
		t.Errorf("remembered are %+v", list)
	}
	b.forget(pod.UID)
	if list := b.list(); len(list) != 0 {
		t.Errorf("after it is gone, remembered are %+v", list)
	}
}

// TestEndIsRemembered: a pod that was evicted while the API was away, and of which nothing is left, is not started again by the next run of the
// agent, whoever answers first; and the API learns of it.
func TestEndIsRemembered(t *testing.T) {
	for _, alone := range []bool{true, false} {
		r, a := newMemoryRuntime(), newAPI()
		p := startPods(t, r, a)
		evicted, runs := boxPod("evicted"), boxPod("runs")
		evicted.Status.Phase, runs.Status.Phase = corev1.PodRunning, corev1.PodRunning
		a.create(evicted.DeepCopy())
		a.create(runs.DeepCopy())
		a.leave(true)
		p.recall([]remember.Pod{{Pod: runs}, {Pod: evicted, Ended: &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "no room"}}})
		p.RuntimeListed(nil)
		if alone {
			p.mu.Lock()
			p.alone.since = p.alone.since.Add(-alonePatience)
			p.mu.Unlock()
			p.RuntimeListed(nil)
			r.await(t, "sandbox runs", "start runs/main")
		}
		a.leave(false)
		a.watch(p)
		p.RuntimeListed(nil)
		if !alone {
			r.await(t, "sandbox runs", "start runs/main")
		}
		got := a.await(t, evicted.UID, "to have failed", hasPhase(corev1.PodFailed))
		if got.Status.Reason != "Evicted" || got.Status.Message != "no room" {
			t.Errorf("alone %t: its end is %s: %s", alone, got.Status.Reason, got.Status.Message)
		}
		a.await(t, runs.UID, "to be ready", isReady)
		if len(r.done) > 0 {
			t.Errorf("alone %t: the runtime was asked to %s", alone, <-r.done)
		}
	}
}

// TestShutdownAlone: pods that ended with their node, while the API was away, start again with it; what ended by itself, or must not
// start twice, does not.
func TestShutdownAlone(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	daemon, once := boxPod("daemon"), boxPod("once")
	daemon.Spec.RestartPolicy, once.Spec.RestartPolicy = corev1.RestartPolicyAlways, corev1.RestartPolicyNever
	pods := []*corev1.Pod{daemon, once}
	for _, pod := range pods {
		a.create(pod)
	}
	a.watch(p)
	p.RuntimeListed(nil)
	for _, pod := range pods {
		a.await(t, pod.UID, "to be ready", isReady)
	}
	a.leave(true)
	s := &shutdown{grace: 2 * time.Minute, pods: p, clock: clock.RealClock{}, announce: func() {}, reported: func() bool { return true }}
	s.run(t.Context())
	late := boxPod("late")
	late.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p.podChanged(late)
	eventually(t, "all ends are known", func() bool {
		list := p.book.list()
		return len(list) == 3 && !slices.ContainsFunc(list, func(pod remember.Pod) bool { return pod.Ended == nil })
	})
	known := survivors(p.book.list())
	r, a = newMemoryRuntime(), newAPI()
	p = startPods(t, r, a)
	p.recall(known)
	p.RuntimeListed(nil)
	p.mu.Lock()
	p.alone.since = p.alone.since.Add(-alonePatience)
	p.mu.Unlock()
	p.RuntimeListed(nil)
	runs := func(uid types.UID) bool {
		now, err := r.Observe(t.Context(), uid)
		return err == nil && slices.ContainsFunc(now.Containers, func(c podworker.Container) bool { return c.State == podworker.Running })
	}
	eventually(t, "the daemon and the late one run", func() bool { return runs(daemon.UID) && runs(late.UID) })
	if p.active(once.UID) || runs(once.UID) {
		t.Error("a pod that must not start twice starts again")
	}
}

// TestAloneRemovesNothing: while the API was not read, what runs and is not remembered stays; then it goes, and so does what was remembered and is
// gone.
func TestAloneRemovesNothing(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	r.pods["unknown"] = &podworker.Runtime{Sandboxes: []podworker.Sandbox{{ID: "s", Ready: true, HostNetwork: true}},
		Containers: []podworker.Container{{ID: "c", Name: "c", SandboxID: "s", State: podworker.Running}}}
	p := startPods(t, r, a)
	p.recall([]remember.Pod{{Pod: boxPod("old")}})
	list := []cri.PodRef{{UID: "unknown", Namespace: "ns", Name: "unknown"}}
	p.RuntimeListed(list)
	if p.has("uid-old") {
		t.Error("it waits for nobody")
	}
	p.mu.Lock()
	p.alone.since = p.alone.since.Add(-alonePatience)
	p.mu.Unlock()
	for range 3 {
		p.RuntimeListed(list)
	}
	r.await(t, "sandbox old", "start old/main")
	select {
	case <-p.knownC:
		t.Error("what others left is cleared away before the API was read")
	default:
	}
	a.watch(p)
	r.await(t, "kill uid-old-main-0", "stop uid-old-0", "remove uid-old-main-0", "remove uid-old-0", "clean uid-old")
	<-p.knownC
	p.RuntimeListed(list)
	p.RuntimeListed(list)
	r.await(t, "kill c", "stop s", "remove c", "remove s", "clean unknown")
}
