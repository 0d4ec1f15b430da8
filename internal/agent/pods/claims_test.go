package pods_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

// drivers of devices, which can refuse.
type drivers struct {
	r      *podstest.Runtime
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
		d.r.Done <- done
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

// A pod's devices are prepared before its sandbox is made, and given back after its containers have ended and before
// the API hears that it is gone. A driver that refuses is asked again, and the pod says why it waits.
func TestDevicesOfAPodAreThereFromItsBeginningToItsEnd(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	d := &drivers{r: r, refuse: errors.New("broken fan")}
	p := podstest.Start(t, r, a, func(cfg *pods.Config) { cfg.Claims = d })
	a.Watch(p)
	p.RuntimeListed(nil)
	pod := podstest.Pod("p")
	a.Create(pod)
	a.AwaitEvent(t, "p: Warning FailedPrepareDynamicResources Failed to prepare dynamic resources: broken fan")
	d.say(nil)
	r.Await(t, "prepare p", "sandbox p", "start p/main")
	d.say(errors.New("driver is away"))
	a.MarkDeleted(pod.UID, 1)
	r.Await(t, "kill uid-p-main-0", "stop uid-p-0", "remove uid-p-main-0", "remove uid-p-0")
	a.AwaitEvent(t, "p: Warning FailedUnprepareDynamicResources Failed to give back dynamic resources: driver is away")
	if a.Get(pod.UID) == nil {
		t.Error("the pod is gone, and its devices are not given back")
	}
	d.say(nil)
	r.Await(t, "release uid-p", "clean uid-p")
}
