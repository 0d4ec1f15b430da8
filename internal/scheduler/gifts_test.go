package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/scheduler/devices"
)

// claimWriter fails to give devices back, and has a claim to read.
type claimWriter struct {
	Writer
	err   error
	there *resourcev1.ResourceClaim
}

func (w claimWriter) FreeClaim(context.Context, *corev1.Pod, *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return w.there, w.err
}

func (w claimWriter) ReadClaim(context.Context, *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return w.there, nil
}

// answers are what writes of a claim are answered in turn; each reading shows the claim that goes with the answer before it.
type answers struct {
	Writer
	list []answer
	// over are the versions over which was written.
	over  []string
	there *resourcev1.ResourceClaim
}

type answer struct {
	err   error
	there *resourcev1.ResourceClaim
}

func (a *answers) BindClaim(_ context.Context, was, next *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	a.over = append(a.over, was.ResourceVersion)
	now := a.list[0]
	a.list, a.there = a.list[1:], now.there
	if now.err != nil {
		return nil, now.err
	}
	return next, nil
}

func (a *answers) ReadClaim(context.Context, *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	if a.there == nil {
		return nil, apierrors.NewNotFound(claimsResource, "c")
	}
	return a.there, nil
}

var claimsResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}

// A device whose claim may have been written, by this process or another, or may still be, is not free for others. In the end it is known.
func TestFailedWriteOfAClaim(t *testing.T) {
	empty := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c", ResourceVersion: "1"}}
	given := empty.DeepCopy()
	given.Status.Allocation = &resourcev1.AllocationResult{}
	labelled := empty.DeepCopy()
	labelled.ResourceVersion, labelled.Labels = "2", map[string]string{"a": "b"}
	another := given.DeepCopy()
	another.UID = "d"
	conflict, silent := apierrors.NewConflict(claimsResource, "c", errors.New("another version")), errors.New("no answer")
	for name, test := range map[string]struct {
		answers []answer
		// free says that the device is at once, later that it is in the end.
		free, later bool
		over        string
	}{
		"it is done":                            {[]answer{{nil, given}}, false, false, "1"},
		"no answer, and it was done":            {[]answer{{silent, given}}, false, false, "1"},
		"no answer, and it is done at last":     {[]answer{{silent, empty}, {silent, labelled}, {nil, given}}, false, false, "112"},
		"no answer, and it comes late":          {[]answer{{silent, empty}, {conflict, given}}, false, false, "11"},
		"no answer, and somebody writes":        {[]answer{{silent, empty}, {conflict, labelled}, {nil, given}}, false, false, "112"},
		"no answer, and then there is no claim": {[]answer{{silent, empty}, {apierrors.NewNotFound(claimsResource, "c"), nil}}, false, true, "11"},
		"no answer, and then it is another one": {[]answer{{silent, empty}, {conflict, another}}, false, true, "11"},
		"somebody gave it devices":              {[]answer{{conflict, given}}, false, false, "1"},
		"somebody changed its labels":           {[]answer{{conflict, labelled}}, true, true, "1"},
		"another of its name":                   {[]answer{{conflict, another}}, true, true, "1"},
		"it is gone":                            {[]answer{{apierrors.NewNotFound(claimsResource, "c"), nil}}, true, true, "1"},
		"it is gone when it is read":            {[]answer{{silent, nil}}, true, true, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &answers{list: test.answers}
				b := newBinder(w, nil, newInbox(), clock.RealClock{}, nil)
				failed, err := b.giveDevices(t.Context(), []devices.Gift{{Was: empty, Next: given}})
				if free := len(failed) == 1; free != test.free || (err == nil) != (test.answers[0].err == nil) {
					t.Errorf("it is free: %t, %v; want %t", free, err, test.free)
				}
				for range 3 {
					time.Sleep(2 * againAfter)
					synctest.Wait()
					b.mu.Lock()
					writes := b.others
					b.others = nil
					b.mu.Unlock()
					for _, write := range writes {
						write(t.Context())
					}
				}
				if len(w.list) > 0 {
					t.Errorf("%d answers were not asked for", len(w.list))
				}
				later := test.free
				for _, m := range b.inbox.take() {
					if m.kind != kindSettled || len(m.gifts) != 1 || m.gifts[0].Next != given {
						t.Errorf("the loop is told %+v", m)
					}
					later = m.err != nil
				}
				if over := strings.Join(w.over, ""); later != test.later || over != test.over {
					t.Errorf("it is free in the end: %t, written over %q; want %t, %q", later, over, test.later, test.over)
				}
			})
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
	conflict := apierrors.NewConflict(claimsResource, "c", errors.New("another version"))
	for name, test := range map[string]struct {
		writer claimWriter
		// bound says that the pod is bound once the answer is here, shows that it is when the API shows what came of it.
		bound, shows bool
	}{
		"it is done":                       {claimWriter{there: given}, false, true},
		"it cannot be done":                {claimWriter{err: apierrors.NewForbidden(claimsResource, "c", nil)}, true, true},
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

// A pod whose binding had no answer may have a node at any time: as long as that can be it keeps its devices.
func TestDevicesStayWhereABindingMayComeLate(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		once bool // they are given back at once
	}{
		"no answer":          {errors.New("no answer"), false},
		"too many":           {apierrors.NewTooManyRequestsError("come later"), false},
		"somebody bound it":  {apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("it has a node")), true},
		"it may not be done": {apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("no")), true},
	} {
		t.Run(name, func(t *testing.T) {
			client, now := fake.NewClientset(), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			s, err := New(Config{Informers: sharedInformers{informers.NewSharedInformerFactory(client, 0)}, Writer: NewWriter(client), Events: NewEventSink(client), Clock: now})
			if err != nil {
				t.Fatal(err)
			}
			l := s.loop
			l.devices.Known()
			l.onDevices(message{object: heldClaim()})
			p := pod("p")
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("c")}}
			l.onPod(p, false)
			l.queue.Pop(now.Now())
			l.onFailedBinding(t.Context(), message{uid: p.UID, err: test.err})
			// There is no node for it.
			givesBack := func(after time.Duration) bool {
				t.Helper()
				now.Step(after)
				next := l.queue.Pop(now.Now())
				if next == nil {
					t.Fatalf("the pod is not tried:\n%s", l.queue.Dump())
				}
				l.schedule(t.Context(), next)
				return len(l.devices.Stuck(p)) == 0
			}
			if once := givesBack(time.Minute); once != test.once {
				t.Errorf("they are given back at once: %t, want %t", once, test.once)
			}
			if !givesBack(time.Hour) {
				t.Error("they are never given back")
			}
			l.late[p.UID] = now.Now().Add(latest)
			l.onPod(p, true)
			if len(l.late) > 0 {
				t.Errorf("a pod that is gone is remembered: %v", l.late)
			}
		})
	}
}
