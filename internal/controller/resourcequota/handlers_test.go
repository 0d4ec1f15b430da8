package resourcequota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What a pod gives back by a resize is counted when its node has taken it, and not before.
func TestAResizeThatEndsIsCounted(t *testing.T) {
	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	pod := func(asked, given string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: cpu(asked)}}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: cpu(given), Resources: &corev1.ResourceRequirements{Requests: cpu(given)}}}
		return p
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns"}, Spec: corev1.ResourceQuotaSpec{Hard: cpu("1")}}
	for _, c := range []struct {
		what          string
		before, after *corev1.Pod
		want          int
	}{
		{"nothing is new", pod("10m", "10m"), pod("10m", "10m"), 0},
		{"less is asked for", pod("10m", "10m"), pod("5m", "10m"), 0},
		{"the node takes it back", pod("5m", "10m"), pod("5m", "5m"), 1},
	} {
		clock := testingclock.NewFakeClock(time.Unix(0, 0))
		due := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](),
			workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Clock: clock})
		added := &counting{TypedRateLimitingInterface: due}
		r := newReconciler(fake.NewClientBuilder().WithObjects(q).Build(), Config{Clock: clock})
		r.handler(corev1.Resource("pods")).Update(t.Context(), event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}, added)
		due.ShutDown()
		if added.n != c.want {
			t.Errorf("%s: %d quotas are counted, want %d", c.what, added.n, c.want)
		}
	}
}

// counting is a queue that notes how much was added.
type counting struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	n int
}

func (c *counting) AddAfter(reconcile.Request, time.Duration) { c.n++ }
