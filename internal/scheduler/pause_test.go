package scheduler

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/scheduler/devices"
)

// slowClock goes on by a step with each look at it.
type slowClock struct {
	*clocktesting.FakeClock
	step time.Duration
}

func (c *slowClock) Now() time.Time {
	c.Step(c.step)
	return c.FakeClock.Now()
}

// statusWriter remembers what pods are told.
type statusWriter struct {
	Writer
	said []string
}

func (w *statusWriter) PatchStatus(_ context.Context, p *corev1.Pod, status StatusPatch) error {
	for _, c := range status.Conditions {
		w.said = append(w.said, p.Name+": "+c.Message)
	}
	return nil
}

// While a namespace pauses for which the choice of devices took long, the pods of others are placed, and its own are told why they wait.
func TestOthersAreNotHeldUpByCostlyClaims(t *testing.T) {
	client, now := fake.NewClientset(), &slowClock{FakeClock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	writer := &statusWriter{}
	s, err := New(Config{Informers: sharedInformers{informers.NewSharedInformerFactory(client, 0)}, Writer: writer, Events: NewEventSink(client), Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	l := s.loop
	l.onNode(node("a", "8", "4Gi"), false)
	l.onDevices(message{object: &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "all"}}})
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	slice.Spec = resourcev1.ResourceSliceSpec{Driver: "d.example.com", NodeName: new("a"), Pool: resourcev1.ResourcePool{Name: "a", ResourceSliceCount: 1}}
	for _, name := range []string{"w", "x", "y", "z"} {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: name})
	}
	l.onDevices(message{object: slice})
	wants := func(name, namespace string, edits ...func(*corev1.Pod)) *corev1.Pod {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("claim-" + name)}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "all", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}
		l.onDevices(message{object: c})
		p := pod(name, func(p *corev1.Pod) { p.Namespace = namespace })
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &name}}
		for _, edit := range edits {
			edit(p)
		}
		l.onPod(p, false)
		return p
	}
	wants("first", "costly")
	second := wants("second", "costly")
	wants("third", "others")
	l.onPod(pod("fourth", func(p *corev1.Pod) { p.Namespace = "costly" }), false)
	l.devices.Known()
	var order []string
	next := func() bool {
		p := l.queue.Pop(now.FakeClock.Now())
		if p == nil {
			return false
		}
		before := len(l.binder.bindings)
		now.step = 0
		if p.Object.Name == "first" || p.Object.Name == "fifth" {
			now.step = time.Second
		}
		l.schedule(t.Context(), p)
		now.step = 0
		if len(l.binder.bindings) > before {
			order = append(order, p.Object.Name)
		}
		return true
	}
	for next() {
	}
	if want := []string{"first", "third", "fourth"}; !slices.Equal(order, want) {
		t.Fatalf("%q were placed, want %q", order, want)
	}
	told := func() {
		t.Helper()
		for _, write := range l.binder.others {
			write(t.Context())
		}
		l.binder.others = nil
		if want := []string{"second: " + devices.TextPause}; !slices.Equal(writer.said, want) {
			t.Errorf("pods are told %q, want %q", writer.said, want)
		}
	}
	told()
	pause := func() {
		t.Helper()
		due, ok := l.queue.Next()
		if pause := due.Sub(now.FakeClock.Now()); !ok || pause <= 0 || pause > time.Minute {
			t.Fatalf("the pod that waits is due in %s, %t", pause, ok)
		}
		now.SetTime(due)
	}
	pause()
	// It is as before for the second, which knows why it waits.
	second = second.DeepCopy()
	second.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: devices.TextPause}}
	l.onPod(second, false)
	wants("fifth", "costly", func(p *corev1.Pod) { p.Spec.Priority = new(int32(1)) })
	for next() {
	}
	told()
	pause()
	for next() {
	}
	if want := []string{"first", "third", "fourth", "fifth", "second"}; !slices.Equal(order, want) {
		t.Errorf("%q were placed in the end, want %q", order, want)
	}
}
