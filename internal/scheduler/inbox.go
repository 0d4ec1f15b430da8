package scheduler

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/volumes"
	"github.com/everynode/everynode/internal/scheduler/devices"
)

type kind uint8

const (
	kindNode kind = iota
	kindPod
	kindBudget
	kindNamespace
	kindClaim
	kindVolume
	kindClass
	kindOutcome    // a binding failed
	kindPreemption // the victims of a preemption could not be removed
	kindDevices
	kindDevicesKnown // all devices and claims to them were told
	kindSettled      // it is known how the writing of claims to devices ended
	kindClaiming     // the claims of a pod could not be given their volumes
	kindAsk          // somebody asks for room
	kindRefused      // a pod for which there is room was not stored
)

// message is the latest state of one object, or how a write ended.
type message struct {
	kind    kind
	uid     types.UID
	object  metav1.Object
	deleted bool
	err     error // of a binding, or of the claims
	uses    []volumes.Use
	gifts   []devices.Gift // of a binding, those that were not written
	version string         // of the claim that was written
	ask     *ask
}

type messageKey struct {
	kind kind
	uid  types.UID
}

// inbox collects messages for the loop. Several messages about one object become one, so a burst never holds more than
// there are objects; their order is that of the first.
type inbox struct {
	mu      sync.Mutex
	pending []message
	places  map[messageKey]int
	wake    chan struct{}
}

func newInbox() *inbox {
	return &inbox{places: map[messageKey]int{}, wake: make(chan struct{}, 1)}
}

func (b *inbox) put(m message) {
	b.mu.Lock()
	key := messageKey{m.kind, m.uid}
	if place, ok := b.places[key]; ok && m.kind != kindOutcome && m.kind != kindPreemption && m.kind != kindClaiming &&
		m.kind != kindSettled {
		b.pending[place] = m
	} else {
		b.places[key] = len(b.pending)
		b.pending = append(b.pending, m)
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns all messages and empties the inbox.
func (b *inbox) take() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) == 0 {
		return nil
	}
	taken := b.pending
	b.pending = nil
	clear(b.places)
	return taken
}

// handler puts what an informer tells into the inbox.
func handler(b *inbox, of kind) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { b.putObject(of, obj, false) },
		UpdateFunc: func(old, obj any) {
			// A deletion and a new object of the same name can reach an informer as one update.
			if before, ok := old.(metav1.Object); ok && before.GetUID() != obj.(metav1.Object).GetUID() {
				b.putObject(of, old, true)
			} else if movesNothing(old, obj) {
				return
			}
			b.putObject(of, obj, false)
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			b.putObject(of, obj, true)
		},
	}
}

// movesNothing reports whether a newer object says nothing that the loop does not know from the older one: most updates
// are a node's sign of life, or the status of a pod that has its node.
func movesNothing(old, obj any) bool {
	switch obj := obj.(type) {
	case *corev1.Pod:
		before, ok := old.(*corev1.Pod)
		return ok && obj.Spec.NodeName != "" && obj.Spec.NodeName == before.Spec.NodeName &&
			terminal(obj) == terminal(before) && fit.SamePod(before, obj)
	case *corev1.Node:
		before, ok := old.(*corev1.Node)
		return ok && fit.SameNode(before, obj)
	}
	return false
}

func (b *inbox) putObject(of kind, obj any, deleted bool) {
	if object, ok := obj.(metav1.Object); ok {
		b.put(message{kind: of, uid: object.GetUID(), object: object, deleted: deleted})
	}
}
