package agent

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/podworker"
)

// slowToStop is a runtime whose containers stop when the test says so. Until then nothing changes in it.
type slowToStop struct {
	*memoryRuntime
	stopping chan string
	released chan struct{}
}

func (r *slowToStop) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	r.stopping <- id
	select {
	case <-r.released:
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.memoryRuntime.StopContainer(ctx, id, grace)
}

// From the moment a pod ends on, whatever ends it, its containers are asked only whether they still serve: also when the runtime
// has no news of them until they stopped.
func TestOnlyReadinessIsProbedOnceAPodEnds(t *testing.T) {
	for name, end := range map[string]func(*api, *pods, *corev1.Pod){
		"deleted": func(a *api, _ *pods, pod *corev1.Pod) { a.markDeleted(pod.UID, 60) },
		"evicted": func(_ *api, p *pods, pod *corev1.Pod) {
			p.terminate(pod.UID, podworker.Termination{Reason: "Evicted", Grace: 60})
		},
		"too old": func(a *api, _ *pods, pod *corev1.Pod) {
			a.update(pod.UID, func(pod *corev1.Pod) {
				started := metav1.NewTime(time.Now().Add(-time.Hour))
				pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime = ptr(int64(1)), &started
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &slowToStop{memoryRuntime: newMemoryRuntime(), stopping: make(chan string, 10), released: make(chan struct{})}
			a := newAPI()
			p := startPods(t, r, a)
			prober := p.prober.(*fakeProber)
			pod := boxPod("p")
			a.create(pod)
			a.watch(p)
			p.RuntimeListed(nil)
			a.await(t, pod.UID, "to be ready", isReady)
			r.await(t, "sandbox p", "start p/main")
			prober.mu.Lock()
			early := prober.kept[pod.UID]
			prober.mu.Unlock()
			if early {
				t.Error("not all of its probes run while the pod does")
			}
			end(a, p, pod)
			<-r.stopping
			prober.mu.Lock()
			if !prober.kept[pod.UID] {
				t.Error("its container is stopped, and is probed as if it were not")
			}
			prober.mu.Unlock()
			close(r.released)
			r.await(t, "kill uid-p-main-0")
		})
	}
}
