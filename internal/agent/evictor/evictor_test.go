package evictor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

// tight is a node whose room a test decides about.
type tight struct {
	*Evictor
	api      *podstest.API
	runtime  *podstest.Runtime
	now      eviction.Observations
	used     map[string]int64
	cleaned  int
	reported int
}

func startTight(t *testing.T, names ...string) *tight {
	t.Helper()
	return startOn(t, func(r *podstest.Runtime) podstest.Machine { return r }, names...)
}

func startOn(t *testing.T, on func(*podstest.Runtime) podstest.Machine, names ...string) *tight {
	t.Helper()
	n := &tight{api: podstest.NewAPI(), runtime: podstest.NewRuntime(), used: map[string]int64{},
		now: eviction.Observations{}}
	p := podstest.Start(t, on(n.runtime), n.api)
	for _, name := range names {
		n.api.Create(podstest.Pod(name))
	}
	n.api.Watch(p)
	p.RuntimeListed(nil)
	for _, name := range names {
		n.api.Await(t, podstest.Pod(name).UID, "to be ready", podstest.IsReady)
	}
	list, err := eviction.Parse("memory.available<100,nodefs.available<100")
	podstest.Must(t, err)
	n.Evictor = New(Config{
		NodeName: "n1", Rules: eviction.Rules{Hard: list}, Pods: p, Events: events.Recorder{EventRecorder: n.api},
		Clock:   testingclock.NewFakeClock(time.Unix(1e9, 0)),
		Observe: func(context.Context) (eviction.Observations, error) { return n.now, nil },
		Usage: func(_ context.Context, list []*corev1.Pod, _ time.Duration) ([]eviction.Usage, error) {
			var out []eviction.Usage
			for _, pod := range list {
				out = append(out, eviction.Usage{Pod: pod, Memory: n.used[pod.Name], Disk: n.used[pod.Name],
					Volumes: map[string]int64{"scratch": n.used[pod.Name]}})
			}
			return out, nil
		},
		FreeImages: func(context.Context) error {
			n.cleaned++
			return nil
		},
		Report: func() { n.reported++ },
	})
	return n
}

func isEvicted(pod *corev1.Pod) bool {
	return pod != nil && pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
}

func TestEvictionIsOneByOne(t *testing.T) {
	n := startTight(t, "small", "big")
	n.used["small"], n.used["big"] = 10, 20
	podstest.Must(t, n.round(t.Context()))
	if n.reported != 0 || n.ending != "" {
		t.Error("a node with room ends a pod")
	}
	n.now[eviction.MemoryAvailable] = eviction.Observation{Available: 99, Capacity: 1000}
	podstest.Must(t, n.round(t.Context()))
	pod := n.api.Await(t, "uid-big", "to be evicted", isEvicted)
	if want := "The node was low on resource: memory. Threshold quantity: 100, available: 99. "; pod.Status.Message != want {
		t.Errorf("message %q, want %q", pod.Status.Message, want)
	}
	found := false
	for _, c := range pod.Status.Conditions {
		found = found || (c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue &&
			c.Reason == "TerminationByKubelet")
	}
	if !found {
		t.Errorf("conditions %v lack DisruptionTarget", pod.Status.Conditions)
	}
	n.api.AwaitEvent(t, "n1: Warning EvictionThresholdMet Attempting to reclaim memory")
	n.api.AwaitEvent(t, "big: Warning Evicted The node was low on resource: memory.")
	if isEvicted(n.api.Get("uid-small")) || n.ending != "uid-big" {
		t.Errorf("two pods were evicted at once, or %q is waited for instead of the one that was", n.ending)
	}
	if n.reported != 1 || n.cleaned != 0 {
		t.Errorf("the node's conditions were refreshed %d times, images removed %d times, want once and never", n.reported,
			n.cleaned)
	}
	podstest.Eventually(t, "the next one goes, once the first is off the node", func() bool {
		podstest.Must(t, n.round(t.Context()))
		return isEvicted(n.api.Get("uid-small"))
	})
}

func TestNobodyGoesWhileAnotherStillStops(t *testing.T) {
	n := startTight(t, "a", "b")
	n.used["a"], n.used["b"] = 10, 20
	n.now[eviction.MemoryAvailable] = eviction.Observation{Available: 99, Capacity: 1000}
	n.ending, n.since = "uid-b", n.cfg.Clock.Now()
	podstest.Must(t, n.round(t.Context()))
	if log := n.api.Log(); strings.Contains(log, "Evicted") {
		t.Errorf("a pod was evicted while another was stopping:\n%s", log)
	}
	n.since = n.since.Add(-evictPatience)
	podstest.Must(t, n.round(t.Context()))
	n.api.Await(t, "uid-b", "to be evicted, now that it was waited for long enough", isEvicted)
}

func TestDiskIsCleanedBeforeAnybodyGoes(t *testing.T) {
	n := startTight(t, "a")
	n.used["a"] = 10
	n.now[eviction.NodeFSAvailable] = eviction.Observation{Available: 99, Capacity: 1000}
	n.cfg.FreeImages = func(context.Context) error {
		n.cleaned++
		n.now = eviction.Observations{}
		return nil
	}
	podstest.Must(t, n.round(t.Context()))
	if n.cleaned != 1 || n.ending != "" {
		t.Errorf("images were removed %d times, %q was ended; want one cleaning to be enough", n.cleaned, n.ending)
	}
}

func TestLimitOfAnEmptyDir(t *testing.T) {
	n := startTight(t)
	pod := podstest.Pod("fat")
	limit := resource.MustParse("10")
	pod.Spec.Volumes = []corev1.Volume{{Name: "scratch",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	n.api.Create(pod)
	n.api.Await(t, pod.UID, "to be ready", podstest.IsReady)
	n.used["fat"] = 10
	podstest.Must(t, n.round(t.Context()))
	n.used["fat"] = 11
	podstest.Must(t, n.round(t.Context()))
	got := n.api.Await(t, pod.UID, "to be evicted", isEvicted)
	if want := `Usage of EmptyDir volume "scratch" exceeds the limit "10". `; got.Status.Message != want {
		t.Errorf("message %q, want %q", got.Status.Message, want)
	}
	if n := strings.Count(n.api.Log(), "Warning Evicted"); n != 1 {
		t.Errorf("%d events, want one", n)
	}
}

func TestASoftThresholdWaits(t *testing.T) {
	n := startTight(t, "a")
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	n.cfg.Clock = clock
	rules, err := eviction.ParseRules(eviction.Texts{Hard: "none", Soft: "memory.available<100",
		SoftGrace: "memory.available=1m"})
	podstest.Must(t, err)
	n.cfg.Rules = rules
	n.now[eviction.MemoryAvailable] = eviction.Observation{Available: 99, Capacity: 1000}
	podstest.Must(t, n.round(t.Context()))
	if n.ending != "" || n.reported != 1 || len(n.Pressures()) != 1 {
		t.Errorf("at first %q is ended, and the node says %v (told %d times); want nobody, and the pressure once", n.ending,
			n.Pressures(), n.reported)
	}
	clock.Step(time.Minute)
	podstest.Must(t, n.round(t.Context()))
	n.api.Await(t, "uid-a", "to be evicted after the grace period", isEvicted)
}

// Whatever keeps one pod from being measured against its limit, thresholds are looked at, and the pod that uses most
// is ended.
func TestThresholdsAreLookedAtInSpiteOfErrors(t *testing.T) {
	n := startTight(t, "small", "big")
	limited := podstest.Pod("limited")
	limited.Spec.Volumes = []corev1.Volume{{Name: "scratch",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Gi"))}}}}
	n.api.Create(limited)
	n.api.Await(t, limited.UID, "to be ready", podstest.IsReady)
	n.used["small"], n.used["big"] = 10, 20
	measure := n.cfg.Usage
	broken := errors.New("file name too long")
	n.cfg.Usage = func(ctx context.Context, list []*corev1.Pod, disk time.Duration) ([]eviction.Usage, error) {
		if len(list) == 1 && list[0].Name == "limited" {
			return nil, broken
		}
		return measure(ctx, list, disk)
	}
	n.now[eviction.NodeFSAvailable] = eviction.Observation{Available: 99, Capacity: 1000}
	if err := n.round(t.Context()); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
	n.api.Await(t, "uid-big", "to be evicted", isEvicted)
}

// hanging is a runtime whose containers do not stop.
type hanging struct{ *podstest.Runtime }

func (hanging) StopContainer(ctx context.Context, _ string, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// A pod that does not end, because its container cannot be stopped, is not all that a node does for its room.
func TestAPodThatCannotEnd(t *testing.T) {
	n := startOn(t, func(r *podstest.Runtime) podstest.Machine { return hanging{r} }, "small", "big")
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	n.cfg.Clock = clock
	n.used["small"], n.used["big"] = 10, 20
	n.now[eviction.MemoryAvailable] = eviction.Observation{Available: 99, Capacity: 1000}
	podstest.Must(t, n.round(t.Context()))
	if n.ending != "uid-big" {
		t.Fatalf("%q is ended", n.ending)
	}
	clock.Step(evictPatience / 2)
	podstest.Must(t, n.round(t.Context()))
	if n.ending != "uid-big" {
		t.Errorf("%q is ended while there is patience with the first", n.ending)
	}
	clock.Step(evictPatience)
	podstest.Must(t, n.round(t.Context()))
	if n.ending != "uid-small" {
		t.Errorf("%q is waited for once more, want the next one", n.ending)
	}
	clock.Step(2 * evictPatience)
	podstest.Must(t, n.round(t.Context()))
	if n.ending != "" {
		t.Errorf("%q is waited for though all were in vain", n.ending)
	}
}
