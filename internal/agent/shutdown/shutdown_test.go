package shutdown_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/shutdown"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func TestShutdownEndsCriticalPodsLast(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a)
	ordinary, critical := podstest.Pod("ordinary"), podstest.Pod("critical")
	critical.Spec.Priority = new(int32(2000001000))
	a.Create(ordinary)
	a.Create(critical)
	a.Watch(p)
	p.RuntimeListed(nil)
	for _, pod := range []*corev1.Pod{ordinary, critical} {
		a.Await(t, pod.UID, "to be ready", podstest.IsReady)
	}
	for len(r.Done) > 0 {
		<-r.Done
	}
	announced := false
	s := &shutdown.Shutdown{Grace: 2 * time.Minute, Critical: time.Minute, Pods: p, Clock: clock.RealClock{},
		Announce: func() { announced = true }, Reported: func() bool { return true }}
	s.Run(t.Context())
	if !announced {
		t.Error("the node did not say that it shuts down")
	}
	for _, pod := range []*corev1.Pod{ordinary, critical} {
		got := a.Await(t, pod.UID, "to have ended", podstest.HasPhase(corev1.PodFailed))
		if got.Status.Reason != "Terminated" || got.Status.Message != "Pod was terminated in response to imminent node shutdown." {
			t.Errorf("%s ended with %q, %q", pod.Name, got.Status.Reason, got.Status.Message)
		}
	}
	r.Await(t, "kill uid-ordinary-main-0")
	var order []string
	for len(r.Done) > 0 {
		order = append(order, <-r.Done)
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
	late := podstest.Pod("late")
	a.Create(late)
	if got := a.Await(t, late.UID, "to be refused", podstest.HasPhase(corev1.PodFailed)); got.Status.Reason != "NodeShutdown" {
		t.Errorf("a pod that comes late: %q, %q", got.Status.Reason, got.Status.Message)
	}
}

// What started first ends last: other pods, then the daemons of the last group of the node's start, those of the first
// at the end.
func TestShutdownReversesTheOrderOfTheStart(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a)
	ordinary, critical, cni, logs := podstest.Pod("ordinary"), podstest.Pod("critical"), podstest.Pod("cni"),
		podstest.Pod("logs")
	critical.Spec.Priority = new(int32(2000001000))
	for pod, group := range map[*corev1.Pod]string{cni: "1", logs: "2", ordinary: "1"} {
		pod.Annotations = map[string]string{nodestartup.GroupAnnotation: group}
		if pod != ordinary { // who only says that it is a daemon of a group is none
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: pod.Name,
				UID: pod.UID, Controller: new(true)}}
		}
	}
	all := []*corev1.Pod{cni, logs, critical, ordinary}
	for _, pod := range all {
		a.Create(pod)
	}
	a.Watch(p)
	p.RuntimeListed(nil)
	for _, pod := range all {
		a.Await(t, pod.UID, "to be ready", podstest.IsReady)
	}
	for len(r.Done) > 0 {
		<-r.Done
	}
	s := &shutdown.Shutdown{Grace: 4 * time.Minute, Critical: 2 * time.Minute, Pods: p, Clock: clock.RealClock{},
		Announce: func() {}, Reported: func() bool { return true }}
	s.Run(t.Context())
	var killed []string
	for len(r.Done) > 0 {
		if call, is := strings.CutPrefix(<-r.Done, "kill uid-"); is {
			killed = append(killed, strings.TrimSuffix(call, "-main-0"))
		}
	}
	if got := strings.Join(killed, " "); got != "ordinary critical logs cni" {
		t.Errorf("pods ended in the order %s", got)
	}
}

// haunted has a pod that ended, and nobody heard of it: it keeps its room.
type haunted struct{ *pods.Manager }

func (h haunted) ActivePods() []*corev1.Pod {
	return append(h.Manager.ActivePods(), podstest.Pod("ghost"))
}

func (h haunted) Active(uid types.UID) bool { return uid == "uid-ghost" || h.Manager.Active(uid) }

func TestShutdownDoesNotWaitForEver(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a)
	pod := podstest.Pod("stubborn")
	a.Create(pod)
	a.Watch(p)
	p.RuntimeListed(nil)
	a.Await(t, pod.UID, "to be ready", podstest.IsReady)
	s := &shutdown.Shutdown{Grace: time.Millisecond, Pods: haunted{p}, Clock: clock.RealClock{}, Announce: func() {},
		Reported: func() bool { return true }}
	s.Run(t.Context())
}

// stubborn are an ordinary pod that never ends, and a critical one that does at once; asked says when each was told to
// end, and how long it was given.
type stubborn struct {
	began time.Time
	asked map[types.UID][2]time.Duration
}

func (s *stubborn) Close(*podadmission.Refusal) {}

func (s *stubborn) ActivePods() []*corev1.Pod {
	ordinary, critical := podstest.Pod("ordinary"), podstest.Pod("critical")
	critical.Spec.Priority = new(int32(2000001000))
	return []*corev1.Pod{ordinary, critical}
}

func (s *stubborn) Active(uid types.UID) bool { return uid == "uid-ordinary" || s.asked[uid][1] == 0 }

func (s *stubborn) Terminate(uid types.UID, why podworker.Termination) bool {
	s.asked[uid] = [2]time.Duration{time.Since(s.began), time.Duration(why.Grace) * time.Second}
	return true
}

// The time that is kept for critical pods is theirs, whatever ordinary ones do.
func TestCriticalPodsHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &stubborn{time.Now(), map[types.UID][2]time.Duration{}}
		s := &shutdown.Shutdown{Grace: 2 * time.Minute, Critical: 30 * time.Second, Pods: p, Clock: clock.RealClock{},
			Announce: func() {}, Reported: func() bool { return true }}
		s.Run(t.Context())
		want := map[types.UID][2]time.Duration{"uid-ordinary": {0, 90 * time.Second},
			"uid-critical": {90 * time.Second, 30 * time.Second}}
		if !maps.Equal(p.asked, want) {
			t.Errorf("pods were told to end after, and had: %v, want %v", p.asked, want)
		}
	})
}

// An upgrade of the program is no reason to end pods.
func TestPodsEndWithTheMachineOnly(t *testing.T) {
	there, away := t.TempDir(), filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		dir, state string
		err        error
		want       bool
	}{
		{away, "", errors.New("no systemd to ask"), true},
		{there, "running", nil, false},
		{there, "degraded", nil, false},
		{there, "starting", nil, false},
		{there, "stopping", nil, true},
		{there, "", errors.New("no answer"), true},
	} {
		got := shutdown.MachineStopsBy(t.Context(), c.dir, func(context.Context) (string, error) { return c.state, c.err })
		if got != c.want {
			t.Errorf("%+v: the machine stops: %v", c, got)
		}
	}
}
