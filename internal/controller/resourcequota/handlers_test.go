package resourcequota

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// counting is a queue that notes how much was added, and after which time what was not added at once.
type counting struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	n     int
	after []time.Duration
}

func (c *counting) Add(reconcile.Request) { c.n++ }

func (c *counting) AddAfter(_ reconcile.Request, d time.Duration) {
	c.n++
	c.after = append(c.after, d)
}

// What a namespace gets back is counted soon, and not when it happens to be counted anyway: what goes, what ends, and a Service
// that needs less. What changes nothing of that costs nothing.
func TestWhatIsGivenBackIsCounted(t *testing.T) {
	now := time.Unix(1000, 0)
	in := metav1.ObjectMeta{Name: "o", Namespace: "ns"}
	pod := func(phase corev1.PodPhase, leaves bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: in, Status: corev1.PodStatus{Phase: phase}}
		if leaves {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(30 * time.Second)}, new(int64(30))
		}
		return p
	}
	service := func(kind corev1.ServiceType, ports int) *corev1.Service {
		return &corev1.Service{ObjectMeta: in, Spec: corev1.ServiceSpec{Type: kind, Ports: make([]corev1.ServicePort, ports)}}
	}
	const (
		cluster, everywhere = corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort
		runs, over          = corev1.PodRunning, corev1.PodSucceeded
	)
	for _, c := range []struct {
		what, resource string
		before, after  client.Object
		want           []time.Duration
	}{
		{"a pod is gone", "pods", pod(runs, true), nil, []time.Duration{settle}},
		{"a pod ends", "pods", pod(runs, false), pod(over, false), []time.Duration{settle}},
		{"one that has ended changes", "pods", pod(over, false), pod(over, false), nil},
		{"a pod is deleted", "pods", pod(runs, false), pod(runs, true), []time.Duration{61 * time.Second}},
		{"one that is deleted changes", "pods", pod(runs, true), pod(runs, true), nil},
		{"a service is gone", "services", service(cluster, 1), nil, []time.Duration{settle}},
		{"a service is of another type", "services", service(everywhere, 1), service(cluster, 1), []time.Duration{settle}},
		{"a service has fewer ports", "services", service(everywhere, 2), service(everywhere, 1), []time.Duration{settle}},
		{"a service changes", "services", service(everywhere, 1), service(everywhere, 1), nil},
		{"a claim is gone, and no quota counts claims", "persistentvolumeclaims", &corev1.PersistentVolumeClaim{ObjectMeta: in}, nil, nil},
	} {
		added := &counting{}
		all := []client.Object{
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns"}, Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1"), corev1.ResourceServices: resource.MustParse("1")}}},
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "other"}, Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1"), corev1.ResourceServices: resource.MustParse("1")}}},
		}
		h := newReconciler(fake.NewClientBuilder().WithObjects(all...).Build(), Config{Clock: testingclock.NewFakeClock(now)}).handler(corev1.Resource(c.resource))
		if c.after == nil {
			h.Delete(t.Context(), event.DeleteEvent{Object: c.before}, added)
		} else {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}, added)
		}
		if !slices.Equal(added.after, c.want) {
			t.Errorf("%s: a quota is counted after %v, want %v", c.what, added.after, c.want)
		}
	}
}

// A quota is counted when it limits something else, and when somebody wrote what is wrong into its status: limits that do
// not hold, or less than was used. What admission charges is no reason.
func TestQuotasAreCountedForNewLimitsAndWrongStatus(t *testing.T) {
	pods := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: resource.MustParse(n)}
	}
	quota := func(uid types.UID, limit, hard, used string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns", UID: uid},
			Spec:       corev1.ResourceQuotaSpec{Hard: pods(limit)},
			Status:     corev1.ResourceQuotaStatus{Hard: pods(hard), Used: pods(used)},
		}
	}
	for _, c := range []struct {
		what  string
		after *corev1.ResourceQuota
		want  int
		later []time.Duration
	}{
		{"another limit", quota("a", "3", "2", "1"), 1, nil},
		{"another one of its name", quota("b", "2", "2", "1"), 1, nil},
		{"more is used", quota("a", "2", "2", "2"), 0, nil},
		{"a limit that does not hold", quota("a", "2", "7", "6"), 1, nil},
		{"less is used", quota("a", "2", "2", "0"), 1, []time.Duration{second}},
	} {
		added := &counting{}
		quotaChanged(t.Context(), event.UpdateEvent{ObjectOld: quota("a", "2", "2", "1"), ObjectNew: c.after}, added)
		if added.n != c.want || !slices.Equal(added.after, c.later) {
			t.Errorf("%s: it is counted %d times, after %v; want %d, %v", c.what, added.n, added.after, c.want, c.later)
		}
	}
}
