package podstest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/podworker"
)

// Runtime is a container runtime in memory, in which containers run at once, and images are always there.
type Runtime struct {
	mu sync.Mutex
	// Pods are what it holds. A test sets them before the runtime is used.
	Pods map[types.UID]*podworker.Runtime
	// Done is told of every call that changes something.
	Done chan string
}

// NewRuntime returns a runtime that holds nothing.
func NewRuntime() *Runtime {
	return &Runtime{Pods: map[types.UID]*podworker.Runtime{}, Done: make(chan string, 1000)}
}

func (r *Runtime) Observe(_ context.Context, uid types.UID) (*podworker.Runtime, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.Pods[uid]
	if p == nil {
		return &podworker.Runtime{}, nil
	}
	return &podworker.Runtime{Sandboxes: slices.Clone(p.Sandboxes), Containers: slices.Clone(p.Containers)}, nil
}

// change changes every pod that has what the call is about.
func (r *Runtime) change(what string, change func(uid types.UID, p *podworker.Runtime)) {
	r.mu.Lock()
	for uid, p := range r.Pods {
		change(uid, p)
	}
	r.Done <- what // before anybody sees what follows from it
	r.mu.Unlock()
}

func (r *Runtime) CreateSandbox(_ context.Context, pod *corev1.Pod, attempt uint32) (string, error) {
	r.mu.Lock()
	id := fmt.Sprintf("%s-%d", pod.UID, attempt)
	r.Pods[pod.UID] = &podworker.Runtime{Sandboxes: []podworker.Sandbox{{ID: id, Attempt: attempt, Ready: true,
		HostNetwork: true}}}
	r.Done <- "sandbox " + pod.Name
	r.mu.Unlock()
	return id, nil
}

func (r *Runtime) StopSandbox(_ context.Context, id string) error {
	r.change("stop "+id, func(_ types.UID, p *podworker.Runtime) {
		for i := range p.Sandboxes {
			p.Sandboxes[i].Ready = p.Sandboxes[i].Ready && p.Sandboxes[i].ID != id
		}
	})
	return nil
}

func (r *Runtime) RemoveSandbox(_ context.Context, id string) error {
	r.change("remove "+id, func(_ types.UID, p *podworker.Runtime) {
		p.Sandboxes = slices.DeleteFunc(p.Sandboxes, func(s podworker.Sandbox) bool { return s.ID == id })
	})
	return nil
}

func (r *Runtime) CreateContainer(_ context.Context, spec cri.ContainerSpec) (string, error) {
	id := fmt.Sprintf("%s-%s-%d", spec.Pod.UID, spec.Container.Name, spec.Attempt)
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.Pods[spec.Pod.UID]
	p.Containers = append(p.Containers, podworker.Container{ID: id, Name: spec.Container.Name, Attempt: spec.Attempt,
		SandboxID: spec.SandboxID, VolumeImages: spec.VolumeImages})
	return id, nil
}

func (r *Runtime) StartContainer(_ context.Context, pod *corev1.Pod, name, id string, _ uint32) error {
	r.SetState("start "+pod.Name+"/"+name, id, podworker.Running)
	return nil
}

// SetState puts a container into a state; what is how Done is told of it.
func (r *Runtime) SetState(what, id string, state podworker.ContainerState) {
	r.change(what, func(_ types.UID, p *podworker.Runtime) {
		for i := range p.Containers {
			if p.Containers[i].ID == id {
				p.Containers[i].State, p.Containers[i].FinishedAt = state, time.Now()
			}
		}
	})
}

func (r *Runtime) StopContainer(_ context.Context, id string, _ time.Duration) error {
	r.SetState("kill "+id, id, podworker.Exited)
	return nil
}

func (r *Runtime) WidenPod(*corev1.Pod) error { return nil }

func (r *Runtime) ResizeContainer(context.Context, *corev1.Pod, *corev1.Container, string) error {
	return nil
}

func (r *Runtime) NarrowPod(*corev1.Pod) error { return nil }

func (r *Runtime) RemoveContainer(_ context.Context, id string) error {
	r.change("remove "+id, func(_ types.UID, p *podworker.Runtime) {
		p.Containers = slices.DeleteFunc(p.Containers, func(c podworker.Container) bool { return c.ID == id })
	})
	return nil
}

func (r *Runtime) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, exitCode int32,
	err error) {
	return nil, nil, 0, nil
}

func (r *Runtime) Clean(_ context.Context, uid types.UID) error {
	r.Done <- "clean " + string(uid)
	return nil
}

// Ensure makes Runtime an image service in which every image is present.
func (r *Runtime) Ensure(context.Context, *corev1.Pod, *corev1.Container) (images.Image, error) {
	return images.Image{Ref: "sha256:1"}, nil
}

// Await waits for calls, in any order, and fails on any other.
func (r *Runtime) Await(t *testing.T, want ...string) {
	t.Helper()
	for len(want) > 0 {
		select {
		case got := <-r.Done:
			i := slices.Index(want, got)
			if i < 0 {
				t.Fatalf("the runtime was asked to %s, want %q", got, want)
			}
			want = slices.Delete(want, i, i+1)
		case <-time.After(Patience):
			t.Fatalf("waited in vain for %q", want)
		}
	}
}
