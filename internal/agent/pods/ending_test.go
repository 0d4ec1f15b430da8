package pods_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
)

// slowToStop is a runtime whose containers stop when the test says so. Until then nothing changes in it.
type slowToStop struct {
	*podstest.Runtime
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
	return r.Runtime.StopContainer(ctx, id, grace)
}

// From the moment a pod ends on, whatever ends it, its containers are asked only whether they still serve: also when
// the runtime has no news of them until they stopped.
func TestOnlyReadinessIsProbedOnceAPodEnds(t *testing.T) {
	for name, end := range map[string]func(*podstest.API, *pods.Manager, *corev1.Pod){
		"deleted": func(a *podstest.API, _ *pods.Manager, pod *corev1.Pod) { a.MarkDeleted(pod.UID, 60) },
		"evicted": func(_ *podstest.API, p *pods.Manager, pod *corev1.Pod) {
			p.Terminate(pod.UID, podworker.Termination{Reason: "Evicted", Grace: 60})
		},
		"too old": func(a *podstest.API, _ *pods.Manager, pod *corev1.Pod) {
			a.Update(pod.UID, func(pod *corev1.Pod) {
				started := metav1.NewTime(time.Now().Add(-time.Hour))
				pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime = new(int64(1)), &started
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &slowToStop{Runtime: podstest.NewRuntime(), stopping: make(chan string, 10), released: make(chan struct{})}
			a := podstest.NewAPI()
			prober := podstest.NewProber()
			p := podstest.Start(t, r, a, func(cfg *pods.Config) { cfg.Prober = prober })
			pod := podstest.Pod("p")
			a.Create(pod)
			a.Watch(p)
			p.RuntimeListed(nil)
			a.Await(t, pod.UID, "to be ready", podstest.IsReady)
			r.Await(t, "sandbox p", "start p/main")
			if prober.Kept(pod.UID) {
				t.Error("not all of its probes run while the pod does")
			}
			end(a, p, pod)
			<-r.stopping
			if !prober.Kept(pod.UID) {
				t.Error("its container is stopped, and is probed as if it were not")
			}
			close(r.released)
			r.Await(t, "kill uid-p-main-0")
		})
	}
}
