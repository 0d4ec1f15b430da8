// Package startorder decides in which order the pods of a node start after its machine did: the daemons of the first
// group of a NodeStartup, then those of the second, and ordinary pods last. It is pure: it has no clock, no lock and no
// client.
package startorder

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/nodestartup"
)

// Bound is how long pods are held at most, from when the node's pods began to start: a daemon that never gets ready
// holds up no node for ever.
const Bound = 2 * time.Minute

// named is how many daemons that are waited for are named.
const named = 3

// nodeCritical is the priority of the class system-node-critical.
const nodeCritical = 2000001000

// last is the place of pods that are in no group: behind all groups.
const last = nodestartup.MaxGroups + 1

// Order is what is known of the pods that were bound to the node when it started. The zero value holds nothing.
type Order struct {
	began time.Time
	pods  map[types.UID]*member
	// reached is the group that may start now. It never falls: a daemon that fails later holds up nobody.
	reached int
}

// member is a pod that was bound to the node. Place is its group, last if it has none, and 0 if it is never held.
type member struct {
	name  string
	place int
	ready bool
}

// New returns the order of these pods, which are bound to a node that began to start pods at a time. If none of them is
// in a group there is no order, and nothing is held.
func New(pods []*corev1.Pod, began time.Time) Order {
	o := Order{began: began, pods: map[types.UID]*member{}}
	for _, pod := range pods {
		if ends(pod) {
			continue
		}
		m := &member{name: pod.Namespace + "/" + pod.Name, place: nodestartup.GroupOf(pod)}
		if m.place == 0 && !neverHeld(pod) {
			m.place = last
		}
		o.pods[pod.UID] = m
	}
	o.advance()
	return o
}

// ends reports whether nobody needs to wait for the pod.
func ends(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed ||
		pod.Status.Phase == corev1.PodSucceeded
}

// neverHeld reports whether a pod that no group names starts at once: the machine itself needs it.
func neverHeld(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCritical
}

// advance goes on to the first group, from the one that is reached, that has a daemon which is not ready. Groups before
// that are done with, whatever becomes of their daemons.
func (o *Order) advance() {
	next := last
	for _, m := range o.pods {
		if m.place >= max(o.reached, 1) && !m.ready {
			next = min(next, m.place)
		}
	}
	o.reached = next
}

// Over reports whether no pod is held any more, now or later.
func (o *Order) Over(now time.Time) bool {
	return o.reached == last || !now.Before(o.Until())
}

// Until is when no pod is held any more, whatever happens.
func (o *Order) Until() time.Time { return o.began.Add(Bound) }

// Ready takes note of whether a pod is ready. It reports whether more pods may start now than before.
func (o *Order) Ready(uid types.UID, ready bool) bool {
	m := o.pods[uid]
	if m == nil {
		return false
	}
	m.ready = ready
	return o.further()
}

// Drop forgets a pod that ended, or that is to end: nobody waits for it. It reports whether more pods may start now
// than before.
func (o *Order) Drop(uid types.UID) bool {
	if o.pods[uid] == nil {
		return false
	}
	delete(o.pods, uid)
	return o.further()
}

func (o *Order) further() bool {
	before := o.reached
	o.advance()
	return o.reached > before
}

// Holds says for what the pod waits, and until when at most, in words for people; empty if it may start.
func (o *Order) Holds(uid types.UID, now time.Time) string {
	m := o.pods[uid]
	if o.Over(now) || m == nil || m.place <= o.reached {
		return ""
	}
	var missing []string
	for _, other := range o.pods {
		if other.place == o.reached && !other.ready {
			missing = append(missing, other.name)
		}
	}
	slices.Sort(missing)
	if more := len(missing) - named; more > 0 {
		missing = append(missing[:named], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("The machine has started again: waiting until group %d of its daemons is ready, which lacks %s; "+
		"until %s at most", o.reached, strings.Join(missing, ", "), o.Until().UTC().Format("15:04:05 UTC"))
}
