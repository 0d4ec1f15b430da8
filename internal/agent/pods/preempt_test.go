package pods_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

// TestStaticPodMakesRoom: a static pod for which there is no room starts when a pod that matters less has ended for it,
// and that one says why.
func TestStaticPodMakesRoom(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a, podstest.WithStaticPods, func(cfg *pods.Config) {
		cfg.Node = func() *corev1.Node {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10")}}}
		}
	})
	asks := func(pod *corev1.Pod, cpu string) *corev1.Pod {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return pod
	}
	a.Create(asks(podstest.Pod("small"), "500m"))
	a.Create(asks(podstest.Pod("large"), "1500m"))
	p.SetStatics(nil)
	a.Watch(p)
	p.RuntimeListed(nil)
	r.Await(t, "sandbox small", "start small/main", "sandbox large", "start large/main")

	p.SetStatics([]*corev1.Pod{asks(podstest.StaticPod("s", "1"), "1200m")})
	r.Await(t, "kill uid-large-main-0")
	r.Await(t, "stop uid-large-0", "sandbox s", "start s/main")
	got := a.Await(t, "uid-large", "to make room", podstest.HasPhase(corev1.PodFailed))
	if got.Status.Reason != eviction.PreemptReason || got.Status.Message != eviction.PreemptMessage {
		t.Errorf("it failed with %s: %s", got.Status.Reason, got.Status.Message)
	}
	a.AwaitEvent(t, "large: Warning Preempting Preempted in order to admit critical pod")
	a.Await(t, "uid-small", "running on", podstest.HasPhase(corev1.PodRunning))
	// One that would not fit on the empty node ends nobody.
	p.SetStatics([]*corev1.Pod{asks(podstest.StaticPod("s", "1"), "1200m"), asks(podstest.StaticPod("huge", "2"), "3")})
	podstest.Eventually(t, "the one that is too large is refused", func() bool {
		return strings.Contains(a.Log(), "huge: Warning OutOfcpu")
	})
	if got := a.Get("uid-small"); got.Status.Phase != corev1.PodRunning {
		t.Errorf("for one that fits nowhere it became %+v", got.Status)
	}
}

// slowRuntime stops a container when the test lets it.
type slowRuntime struct {
	*podstest.Runtime
	stop chan struct{}
}

func (r slowRuntime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	select {
	case <-r.stop:
		return r.Runtime.StopContainer(ctx, id, grace)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// succeed deletes a pod by force while its container does not stop, and makes another at once: that one starts when the
// first has left.
func succeed(t *testing.T, r *podstest.Runtime, a *podstest.API, p *pods.Manager, stop chan struct{},
	named func(string) *corev1.Pod) {
	t.Helper()
	a.Create(named("first"))
	a.Watch(p)
	p.RuntimeListed(nil)
	r.Await(t, "sandbox first", "start first/main")
	a.Drop("uid-first")
	a.Create(named("second"))
	podstest.Eventually(t, "the second pod was taken", func() bool { return p.Active("uid-second") })
	close(stop)
	r.Await(t, "kill uid-first-main-0")
	r.Await(t, "stop uid-first-0", "remove uid-first-main-0", "remove uid-first-0", "clean uid-first", "sandbox second",
		"start second/main")
}

// A pod that takes the place of one that was deleted by force waits for its port until that one's containers have
// ended.
func TestSuccessorOfAPodDeletedByForce(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	stop := make(chan struct{})
	p := podstest.Start(t, slowRuntime{r, stop}, a)
	withPort := func(name string) *corev1.Pod {
		pod := podstest.Pod(name)
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		return pod
	}
	succeed(t, r, a, p, stop, withPort)
	if log := a.Log(); strings.Contains(log, eviction.PreemptReason) {
		t.Errorf("nothing made room, but the events are\n%s", log)
	}
	// While the pod is in the API, its port is taken.
	a.Create(withPort("third"))
	a.Await(t, "uid-third", "to be refused", podstest.HasPhase(corev1.PodFailed))
}

// oneDevice is a device plugin with one device.
type oneDevice struct {
	pods.Devices
	mu   sync.Mutex
	held types.UID
}

const theDevice = "example.com/one"

func (d *oneDevice) Provides(name corev1.ResourceName) bool { return name == theDevice }

func (d *oneDevice) Admit(_ context.Context, pod *corev1.Pod) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != "" {
		return fmt.Errorf("requested number of devices unavailable: %s has it", d.held)
	}
	d.held = pod.UID
	return nil
}

func (d *oneDevice) Container(context.Context, *corev1.Pod, *corev1.Container) (devices.Options, error) {
	return devices.Options{}, nil
}

func (d *oneDevice) Free(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held == uid {
		d.held = ""
	}
}

// The successor of a pod that was deleted by force gets its device.
func TestSuccessorGetsTheDevice(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	stop := make(chan struct{})
	p := podstest.Start(t, slowRuntime{r, stop}, a, func(cfg *pods.Config) { cfg.Devices = &oneDevice{} })
	withDevice := func(name string) *corev1.Pod {
		pod := podstest.Pod(name)
		one := corev1.ResourceList{theDevice: resource.MustParse("1")}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
		return pod
	}
	succeed(t, r, a, p, stop, withDevice)
}
