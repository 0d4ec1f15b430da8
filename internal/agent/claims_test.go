package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// drivers of devices, which can refuse.
type drivers struct {
	r      *memoryRuntime
	mu     sync.Mutex
	refuse error
}

func (d *drivers) say(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = err
}

func (d *drivers) answer(done string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse == nil {
		d.r.done <- done
	}
	return d.refuse
}

func (d *drivers) Prepare(_ context.Context, pod *corev1.Pod) error {
	return d.answer("prepare " + pod.Name)
}

func (d *drivers) Container(context.Context, *corev1.Pod, *corev1.Container) ([]string, error) {
	return []string{"x.com/gpu=0"}, nil
}

func (d *drivers) Release(_ context.Context, uid types.UID) error {
	return d.answer("release " + string(uid))
}

// A pod's devices are prepared before its sandbox is made, and given back after its containers have ended and before the API hears that it
// is gone. A driver that refuses is asked again, and the pod says why it waits.
func TestDevicesOfAPodAreThereFromItsBeginningToItsEnd(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	d := &drivers{r: r, refuse: errors.New("broken fan")}
	p.claims = d
	a.watch(p)
	p.RuntimeListed(nil)
	pod := boxPod("p")
	a.create(pod)
	said := func(text string) func() bool {
		return func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return slices.ContainsFunc(a.recorded, func(e string) bool { return e == text })
		}
	}
	eventually(t, "an event says why the pod waits", said("p: Warning FailedPrepareDynamicResources Failed to prepare dynamic resources: broken fan"))
	d.say(nil)
	r.await(t, "prepare p", "sandbox p", "start p/main")
	d.say(errors.New("driver is away"))
	a.markDeleted(pod.UID, 1)
	r.await(t, "kill uid-p-main-0", "stop uid-p-0", "remove uid-p-main-0", "remove uid-p-0")
	eventually(t, "an event says why the pod stays", said("p: Warning FailedUnprepareDynamicResources Failed to give back dynamic resources: driver is away"))
	a.mu.Lock()
	if a.pods[pod.UID] == nil {
		t.Error("the pod is gone, and its devices are not given back")
	}
	a.mu.Unlock()
	d.say(nil)
	r.await(t, "release uid-p", "clean uid-p")
}
