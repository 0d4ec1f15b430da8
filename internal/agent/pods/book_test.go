package pods_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/shutdown"
)

// TestBook: what makes a difference to the next start is noted, and what changes all the time is not.
func TestBook(t *testing.T) {
	notes := 0
	b := pods.NewBook(nil, func() { notes++ })
	pod := podstest.Pod("p")
	change := func(f func(*corev1.Pod)) {
		pod = pod.DeepCopy()
		f(pod)
		b.Seen(pod)
	}
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"a pod comes", func() { b.Seen(pod) }, true},
		{"it is seen again", func() { b.Seen(pod) }, false},
		{"its heartbeat", func() {
			change(func(p *corev1.Pod) {
				p.ResourceVersion, p.Status.ContainerStatuses = "7", []corev1.ContainerStatus{{RestartCount: 3}}
			})
		}, false},
		{"it runs", func() { change(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }) }, true},
		{"its image changes", func() { change(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "x" }) }, true},
		{"its label changes", func() { change(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }) }, true},
		{"it is deleted", func() { change(func(p *corev1.Pod) { p.DeletionTimestamp = &p.CreationTimestamp }) }, true},
		{"it ends", func() { b.Ended(pod.UID, &corev1.PodStatus{Phase: corev1.PodFailed}) }, true},
		{"it ended", func() { b.Ended(pod.UID, &corev1.PodStatus{Phase: corev1.PodFailed}) }, false},
		{"somebody else ends", func() { b.Ended("other", &corev1.PodStatus{Phase: corev1.PodFailed}) }, false},
	} {
		before := notes
		step.do()
		if notes > before != step.want {
			t.Errorf("%s: it is noted: %t, want %t", step.what, notes > before, step.want)
		}
	}
	if list := b.List(); len(list) != 1 || list[0].Pod != pod || list[0].Ended == nil {
		t.Errorf("remembered are %+v", list)
	}
	b.Forget(pod.UID)
	if list := b.List(); len(list) != 0 {
		t.Errorf("after it is gone, remembered are %+v", list)
	}
}

// TestEndIsRemembered: a pod that was evicted while the API was away, and of which nothing is left, is not started
// again by the next run of the
// agent, whoever answers first; and the API learns of it.
func TestEndIsRemembered(t *testing.T) {
	for _, alone := range []bool{true, false} {
		r, a := podstest.NewRuntime(), podstest.NewAPI()
		p := podstest.Start(t, r, a)
		evicted, runs := podstest.Pod("evicted"), podstest.Pod("runs")
		evicted.Status.Phase, runs.Status.Phase = corev1.PodRunning, corev1.PodRunning
		a.Create(evicted.DeepCopy())
		a.Create(runs.DeepCopy())
		a.Leave(true)
		p.Recall([]remember.Pod{{Pod: runs}, {Pod: evicted,
			Ended: &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "no room"}}})
		p.RuntimeListed(nil)
		if alone {
			p.AloneForLong()
			p.RuntimeListed(nil)
			r.Await(t, "sandbox runs", "start runs/main")
		}
		a.Leave(false)
		a.Watch(p)
		p.RuntimeListed(nil)
		if !alone {
			r.Await(t, "sandbox runs", "start runs/main")
		}
		got := a.Await(t, evicted.UID, "to have failed", podstest.HasPhase(corev1.PodFailed))
		if got.Status.Reason != "Evicted" || got.Status.Message != "no room" {
			t.Errorf("alone %t: its end is %s: %s", alone, got.Status.Reason, got.Status.Message)
		}
		a.Await(t, runs.UID, "to be ready", podstest.IsReady)
		if len(r.Done) > 0 {
			t.Errorf("alone %t: the runtime was asked to %s", alone, <-r.Done)
		}
	}
}

// TestShutdownAlone: pods that ended with their node, while the API was away, start again with it; what ended by
// itself, or must not start twice, does not.
func TestShutdownAlone(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	book := pods.NewBook(nil, nil)
	p := podstest.Start(t, r, a, func(cfg *pods.Config) { cfg.Book = book })
	daemon, once := podstest.Pod("daemon"), podstest.Pod("once")
	daemon.Spec.RestartPolicy, once.Spec.RestartPolicy = corev1.RestartPolicyAlways, corev1.RestartPolicyNever
	both := []*corev1.Pod{daemon, once}
	for _, pod := range both {
		a.Create(pod)
	}
	a.Watch(p)
	p.RuntimeListed(nil)
	for _, pod := range both {
		a.Await(t, pod.UID, "to be ready", podstest.IsReady)
	}
	a.Leave(true)
	s := &shutdown.Shutdown{Grace: 2 * time.Minute, Pods: p, Clock: clock.RealClock{}, Announce: func() {},
		Reported: func() bool { return true }}
	s.Run(t.Context())
	late := podstest.Pod("late")
	late.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p.PodChanged(late)
	podstest.Eventually(t, "all ends are known", func() bool {
		list := book.List()
		return len(list) == 3 && !slices.ContainsFunc(list, func(pod remember.Pod) bool { return pod.Ended == nil })
	})
	known := shutdown.Survivors(book.List())
	r, a = podstest.NewRuntime(), podstest.NewAPI()
	p = podstest.Start(t, r, a)
	p.Recall(known)
	p.RuntimeListed(nil)
	p.AloneForLong()
	p.RuntimeListed(nil)
	runs := func(uid types.UID) bool {
		now, err := r.Observe(t.Context(), uid)
		return err == nil && slices.ContainsFunc(now.Containers,
			func(c podworker.Container) bool { return c.State == podworker.Running })
	}
	podstest.Eventually(t, "the daemon and the late one run", func() bool { return runs(daemon.UID) && runs(late.UID) })
	if p.Active(once.UID) || runs(once.UID) {
		t.Error("a pod that must not start twice starts again")
	}
}

// TestAloneRemovesNothing: while the API was not read, what runs and is not remembered stays; then it goes, and so
// does what was remembered and is
// gone.
func TestAloneRemovesNothing(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	r.Pods["unknown"] = &podworker.Runtime{Sandboxes: []podworker.Sandbox{{ID: "s", Ready: true, HostNetwork: true}},
		Containers: []podworker.Container{{ID: "c", Name: "c", SandboxID: "s", State: podworker.Running}}}
	p := podstest.Start(t, r, a)
	p.Recall([]remember.Pod{{Pod: podstest.Pod("old")}})
	list := []pleg.PodRef{{UID: "unknown", Namespace: "ns", Name: "unknown"}}
	p.RuntimeListed(list)
	if p.Has("uid-old") {
		t.Error("it waits for nobody")
	}
	p.AloneForLong()
	for range 3 {
		p.RuntimeListed(list)
	}
	r.Await(t, "sandbox old", "start old/main")
	select {
	case <-p.Known():
		t.Error("what others left is cleared away before the API was read")
	default:
	}
	a.Watch(p)
	r.Await(t, "kill uid-old-main-0", "stop uid-old-0", "remove uid-old-main-0", "remove uid-old-0", "clean uid-old")
	<-p.Known()
	p.RuntimeListed(list)
	p.RuntimeListed(list)
	r.Await(t, "kill c", "stop s", "remove c", "remove s", "clean unknown")
}
