package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/status"
)

// memoryRuntime is a runtime in memory, in which containers run at once. Done is told of every call that changes something.
type memoryRuntime struct {
	mu   sync.Mutex
	pods map[types.UID]*podworker.Runtime
	done chan string
}

func newMemoryRuntime() *memoryRuntime {
	return &memoryRuntime{pods: map[types.UID]*podworker.Runtime{}, done: make(chan string, 1000)}
}

func (r *memoryRuntime) Observe(_ context.Context, uid types.UID) (*podworker.Runtime, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	if p == nil {
		return &podworker.Runtime{}, nil
	}
	return &podworker.Runtime{Sandboxes: slices.Clone(p.Sandboxes), Containers: slices.Clone(p.Containers)}, nil
}

// change changes every pod that has what the call is about.
func (r *memoryRuntime) change(what string, change func(uid types.UID, p *podworker.Runtime)) {
	r.mu.Lock()
	for uid, p := range r.pods {
		change(uid, p)
	}
	r.mu.Unlock()
	r.done <- what
}

func (r *memoryRuntime) CreateSandbox(_ context.Context, pod *corev1.Pod, attempt uint32) (string, error) {
	r.mu.Lock()
	id := fmt.Sprintf("%s-%d", pod.UID, attempt)
	r.pods[pod.UID] = &podworker.Runtime{Sandboxes: []podworker.Sandbox{{ID: id, Attempt: attempt, Ready: true, HostNetwork: true}}}
	r.mu.Unlock()
	r.done <- "sandbox " + pod.Name
	return id, nil
}

func (r *memoryRuntime) StopSandbox(_ context.Context, id string) error {
	r.change("stop "+id, func(_ types.UID, p *podworker.Runtime) {
		for i := range p.Sandboxes {
			p.Sandboxes[i].Ready = p.Sandboxes[i].Ready && p.Sandboxes[i].ID != id
		}
	})
	return nil
}

func (r *memoryRuntime) RemoveSandbox(_ context.Context, id string) error {
	r.change("remove "+id, func(_ types.UID, p *podworker.Runtime) {
		p.Sandboxes = slices.DeleteFunc(p.Sandboxes, func(s podworker.Sandbox) bool { return s.ID == id })
	})
	return nil
}

func (r *memoryRuntime) CreateContainer(_ context.Context, spec cri.ContainerSpec) (string, error) {
	id := fmt.Sprintf("%s-%s-%d", spec.Pod.UID, spec.Container.Name, spec.Attempt)
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[spec.Pod.UID]
	p.Containers = append(p.Containers, podworker.Container{ID: id, Name: spec.Container.Name, Attempt: spec.Attempt, SandboxID: spec.SandboxID})
	return id, nil
}

func (r *memoryRuntime) StartContainer(_ context.Context, pod *corev1.Pod, name, id string, _ uint32) error {
	r.setState("start "+pod.Name+"/"+name, id, podworker.Running)
	return nil
}

func (r *memoryRuntime) setState(what, id string, state podworker.ContainerState) {
	r.change(what, func(_ types.UID, p *podworker.Runtime) {
		for i := range p.Containers {
			if p.Containers[i].ID == id {
				p.Containers[i].State, p.Containers[i].FinishedAt = state, time.Now()
			}
		}
	})
}

func (r *memoryRuntime) StopContainer(_ context.Context, id string, _ time.Duration) error {
	r.setState("kill "+id, id, podworker.Exited)
	return nil
}

func (r *memoryRuntime) WidenPod(*corev1.Pod) error { return nil }

func (r *memoryRuntime) ResizeContainer(context.Context, *corev1.Pod, *corev1.Container, string) error {
	return nil
}

func (r *memoryRuntime) NarrowPod(*corev1.Pod) error { return nil }

func (r *memoryRuntime) RemoveContainer(_ context.Context, id string) error {
	r.change("remove "+id, func(_ types.UID, p *podworker.Runtime) {
		p.Containers = slices.DeleteFunc(p.Containers, func(c podworker.Container) bool { return c.ID == id })
	})
	return nil
}

func (r *memoryRuntime) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	return nil, nil, 0, nil
}

func (r *memoryRuntime) Clean(uid types.UID) error {
	r.done <- "clean " + string(uid)
	return nil
}

// Ensure makes memoryRuntime an image service in which every image is present.
func (r *memoryRuntime) Ensure(context.Context, *corev1.Pod, *corev1.Container) (images.Image, error) {
	return images.Image{Ref: "sha256:1"}, nil
}

// await waits for calls, in any order, and fails on any other.
func (r *memoryRuntime) await(t *testing.T, want ...string) {
	t.Helper()
	for len(want) > 0 {
		select {
		case got := <-r.done:
			i := slices.Index(want, got)
			if i < 0 {
				t.Fatalf("the runtime was asked to %s, want %q", got, want)
			}
			want = slices.Delete(want, i, i+1)
		case <-time.After(patience):
			t.Fatalf("waited in vain for %q", want)
		}
	}
}

type runtimeWithImages interface {
	Runtime
	Images
}

// startPods starts the pod loop over a runtime in memory; whatever the API and the runtime have is told by the test.
func startPods(t *testing.T, r runtimeWithImages, a *api) *pods {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	statuses := status.New(a)
	p := newPods(ctx, parts{
		runtime: r, devices: devices.New(devices.Config{Dir: t.TempDir(), Clock: clock.RealClock{}}), claims: noClaims{}, images: r, volumes: &fakeVolumes{}, prober: &fakeProber{kept: map[types.UID]bool{}}, statuses: statuses, events: events{recorder: a},
		clock: clock.RealClock{}, hostIPs: func() []string { return []string{"192.0.2.1"} }, node: func() *corev1.Node { return nil },
		env: func(context.Context, *corev1.Pod, *corev1.Container, []string) ([]env.Var, error) { return nil, nil },
	})
	var wg sync.WaitGroup
	wg.Go(func() { statuses.Run(ctx) })
	wg.Go(func() { p.wait(ctx) })
	t.Cleanup(func() {
		a.watch(nil)
		cancel()
		wg.Wait()
	})
	return p
}

func TestNothingStartsBeforeBothSidesAreKnown(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	pod := boxPod("p")
	p.podChanged(pod)
	p.RuntimeListed(nil)
	if p.has(pod.UID) {
		t.Error("a worker was started before the API was read")
	}
	p.apiListed()
	if p.has(pod.UID) {
		t.Error("a worker was started before the runtime was read after the API")
	}
	p.RuntimeListed(nil)
	r.await(t, "sandbox p", "start p/main")
}

// A runtime that hangs, so that each look ends with an error, makes the node unwell.
func TestNodeIsUnwellWithoutAGoodLook(t *testing.T) {
	clk := testclock.NewFakeClock(time.Unix(1e9, 0))
	p := newPods(t.Context(), parts{clock: clk})
	for _, step := range []struct {
		look func()
		well bool
	}{
		{func() { p.RuntimeFailed(context.DeadlineExceeded) }, true},
		{func() { p.RuntimeFailed(context.DeadlineExceeded) }, false},
		{func() { p.RuntimeFailed(context.DeadlineExceeded) }, false},
		{func() { p.RuntimeListed(nil) }, true},
		{func() { p.RuntimeFailed(context.DeadlineExceeded) }, true},
		{func() {}, false},
	} {
		clk.Step(2 * time.Minute)
		step.look()
		if err := p.healthy(); (err == nil) != step.well {
			t.Errorf("after %s: %v, want well: %v", clk.Since(time.Unix(1e9, 0)), err, step.well)
		}
	}
}

func TestOrphanIsRemovedAtTheSecondLook(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	r.pods["old"] = &podworker.Runtime{Sandboxes: []podworker.Sandbox{{ID: "s", Ready: true}},
		Containers: []podworker.Container{{ID: "c", Name: "c", SandboxID: "s", State: podworker.Running}}}
	p := startPods(t, r, a)
	p.apiListed()
	list := []cri.PodRef{{UID: "old", Namespace: "ns", Name: "old"}}
	p.RuntimeListed(list)
	if p.has("old") {
		t.Error("a pod was taken for an orphan at the first look")
	}
	if !p.remains("old") || p.remains("older") {
		t.Errorf("before the second look, what is cleared away is not what was left by pods that the runtime has no more: %t, %t", p.remains("old"), p.remains("older"))
	}
	p.RuntimeListed(list)
	r.await(t, "kill c", "stop s", "remove c", "remove s", "clean old")
}

func TestMirrorPodIsNotRun(t *testing.T) {
	p := startPods(t, newMemoryRuntime(), newAPI())
	p.apiListed()
	p.RuntimeListed(nil)
	pod := boxPod("mirror")
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	p.podChanged(pod)
	if p.has(pod.UID) {
		t.Error("a worker was started for the reflection of a static pod")
	}
}

// A watch that broke shows a new pod of the same name as a change of the old one.
func TestPodReplacedByANamesake(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	first := boxPod("p")
	client := fake.NewClientset(first)
	s := newSources(client, "n1")
	handled, err := s.feed(p)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx, handled, p.apiListed) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	eventually(t, "the pods were listed", func() bool {
		p.RuntimeListed(nil)
		return p.has(first.UID)
	})
	r.await(t, "sandbox p", "start p/main")
	second := first.DeepCopy()
	second.UID = "uid-second"
	_, err = client.CoreV1().Pods("default").Update(ctx, second, metav1.UpdateOptions{})
	must(t, err)
	r.await(t, "kill uid-p-main-0", "stop uid-p-0", "remove uid-p-main-0", "remove uid-p-0", "clean uid-p", "sandbox p", "start p/main")
}

// A container restarts though its pod got a label when one of its volumes could not be set up any more.
func TestLabelHoldsUpNoRestart(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	volumes, ok := p.volumes.(*fakeVolumes)
	if !ok {
		t.Fatalf("volumes are %T", p.volumes)
	}
	a.create(boxPod("p"))
	a.watch(p)
	p.RuntimeListed(nil)
	r.await(t, "sandbox p", "start p/main")
	volumes.fail(errors.New("configmap \"c\" not found"))
	a.update("uid-p", func(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} })
	eventually(t, "the volumes know the label", func() bool {
		volumes.mu.Lock()
		defer volumes.mu.Unlock()
		return slices.ContainsFunc(volumes.changed, func(pod *corev1.Pod) bool { return pod.Labels["a"] == "b" })
	})
	r.setState("exit", "uid-p-main-0", podworker.Exited)
	p.RuntimeChanged("uid-p")
	r.await(t, "exit", "start p/main")
}
