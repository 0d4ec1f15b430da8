package scheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/scheduler/devices"
)

// claimWriter fails to write claims, and has one to read.
type claimWriter struct {
	Writer
	err   error
	there *resourcev1.ResourceClaim
}

func (w claimWriter) BindClaim(context.Context, *resourcev1.ResourceClaim, *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return w.there, w.err
}

func (w claimWriter) FreeClaim(context.Context, *corev1.Pod, *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return w.there, w.err
}

func (w claimWriter) ReadClaim(context.Context, *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return w.there, nil
}

// A device whose claim may have been written, by this process or another, is not free for others.
func TestFailedWriteOfAClaim(t *testing.T) {
	of := schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
	empty := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}}
	given := empty.DeepCopy()
	given.Status.Allocation = &resourcev1.AllocationResult{}
	another := given.DeepCopy()
	another.UID = "d"
	for name, test := range map[string]struct {
		err   error
		there *resourcev1.ResourceClaim
		free  int
	}{
		"it was done":                 {nil, given, 0},
		"no answer, and it was done":  {errors.New("no answer"), given, 0},
		"no answer, and it was not":   {errors.New("no answer"), empty, 1},
		"somebody gave it devices":    {apierrors.NewConflict(of, "c", errors.New("another version")), given, 0},
		"somebody changed its labels": {apierrors.NewConflict(of, "c", errors.New("another version")), empty, 1},
		"another of its name":         {apierrors.NewConflict(of, "c", errors.New("another one")), another, 1},
		"it is gone":                  {apierrors.NewNotFound(of, "c"), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &binder{writer: claimWriter{err: test.err, there: test.there}, inbox: newInbox()}
			failed, err := b.giveDevices(t.Context(), []devices.Gift{{Was: empty, Next: given}})
			if len(failed) != test.free || (err == nil) != (test.err == nil) {
				t.Errorf("%d are free again, %v; want %d", len(failed), err, test.free)
			}
		})
	}
}

// heldClaim has a device of node a, for the pod p alone.
func heldClaim() *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c", ResourceVersion: "7", Finalizers: []string{resourcev1.Finalizer}}}
	c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "pod-p"}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	return c
}

// A pod that fits nowhere gives its devices back. If it fits again before that is known to be done, or not, it must not be bound: its claim
// may have no devices when it starts.
func TestAPodIsNotBoundWhileItsDevicesAreGivenBack(t *testing.T) {
	given := heldClaim()
	given.ResourceVersion, given.Status = "9", resourcev1.ResourceClaimStatus{}
	touched := heldClaim()
	touched.ResourceVersion = "8"
	conflict := apierrors.NewConflict(schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}, "c", errors.New("another version"))
	for name, test := range map[string]struct {
		writer claimWriter
		// bound says that the pod is bound once the answer is here, shows that it is when the API shows what came of it.
		bound, shows bool
	}{
		"it is done":                       {claimWriter{there: given}, false, true},
		"it cannot be done":                {claimWriter{err: apierrors.NewForbidden(schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}, "c", nil)}, true, true},
		"the pod has a node":               {claimWriter{err: errHasNode}, true, true},
		"somebody wrote something else":    {claimWriter{err: conflict, there: touched}, false, true},
		"no answer, and it was done":       {claimWriter{err: errors.New("no answer"), there: given}, false, true},
		"no answer, and it was not so far": {claimWriter{err: errors.New("no answer"), there: heldClaim()}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, now := fake.NewClientset(), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			writer := test.writer
			writer.Writer = NewWriter(client)
			s, err := New(Config{Informers: sharedInformers{informers.NewSharedInformerFactory(client, 0)}, Writer: writer, Events: NewEventSink(client), Clock: now})
			if err != nil {
				t.Fatal(err)
			}
			l := s.loop
			l.devices.Known()
			l.onDevices(message{object: heldClaim()})
			l.onNode(node("a", "1", "4Gi"), false)
			other := pod("other", requests("1", "1Gi"))
			other.Spec.NodeName = "a"
			l.onPod(other, false)
			p := pod("p", requests("1", "1Gi"))
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("c")}}
			l.onPod(p, false)
			isBound := func() bool {
				now.Step(time.Minute)
				if next := l.queue.Pop(now.Now()); next != nil {
					l.schedule(t.Context(), next)
				}
				return len(l.binder.bindings) > 0
			}
			isBound() // there is no room
			l.onPod(other, true)
			if isBound() {
				t.Fatal("it is bound while its devices are given back")
			}
			for _, write := range l.binder.others {
				write(t.Context())
			}
			l.drain(t.Context())
			if bound := isBound(); bound != test.bound {
				t.Errorf("it is bound: %t, want %t", bound, test.bound)
			}
			if test.writer.there != nil {
				l.onDevices(message{object: test.writer.there})
			}
			if bound := isBound(); bound != test.shows {
				t.Errorf("it is bound once the API shows that: %t, want %t\n%s", bound, test.shows, l.queue.Dump())
			}
		})
	}
}
