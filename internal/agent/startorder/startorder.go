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

	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Bound is how long pods are held at most, from when the node's pods began to start.
const Bound = nodestartup.HeldFor

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
	// reached is the group that may start now, since some time. It never falls: a daemon that fails later holds up nobody.
	reached int
	since   time.Time
}

// member is a pod that was bound to the node. Place is its group, last if it has none, and 0 if it is never held.
type member struct {
	name  string
	place int
	ready bool
	// timeout is how long its group waits for it; 0 for as long as there is an order.
	timeout time.Duration
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
		m.timeout = nodestartup.OpensAfter(pod)
		if m.place == 0 && !neverHeld(pod) {
			m.place = last
		}
		o.pods[pod.UID] = m
	}
	o.advance(began)
	return o
}

// ends reports whether nobody needs to wait for the pod.
func ends(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || podfacts.IsTerminal(pod)
}

// neverHeld reports whether a pod that no group names starts at once: the machine itself needs it.
func neverHeld(pod *corev1.Pod) bool {
	return pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCritical
}

// advance goes on to the first group, from the one that is reached, that has a daemon which is waited for. Groups
// before that are done with, whatever becomes of their daemons. It reports whether more pods may start than before.
func (o *Order) advance(now time.Time) (more bool) {
	next := last
	for _, m := range o.pods {
		if m.place > o.reached && m.place > 0 && !m.ready || o.awaits(m, now) {
			next = min(next, m.place)
		}
	}
	more = next > o.reached
	if more {
		o.reached, o.since = next, now
	}
	return more
}

// awaits reports whether the group that may start now waits for this daemon of it.
func (o *Order) awaits(m *member, now time.Time) bool {
	return m.place == o.reached && m.place > 0 && !m.ready && (m.timeout == 0 || now.Before(o.since.Add(m.timeout)))
}

// Look goes by the time alone: it reports whether more pods may start now than before.
func (o *Order) Look(now time.Time) bool { return !o.Over(now) && o.advance(now) }

// Next is when to look again without any news: when the last timeout of the group that may start now is over.
func (o *Order) Next() time.Time {
	var end time.Time
	for _, m := range o.pods {
		if m.place != o.reached || m.ready {
			continue
		}
		if m.timeout == 0 {
			return o.Until()
		}
		end = deadline.Later(end, o.since.Add(m.timeout))
	}
	return deadline.Sooner(end, o.Until())
}

// Over reports whether no pod is held any more, now or later.
func (o *Order) Over(now time.Time) bool {
	return o.reached == last || !now.Before(o.Until())
}

// Until is when no pod is held any more, whatever happens.
func (o *Order) Until() time.Time { return o.began.Add(Bound) }

// Ready takes note of whether a pod is ready. It reports whether more pods may start now than before.
func (o *Order) Ready(uid types.UID, ready bool, now time.Time) bool {
	m := o.pods[uid]
	if m == nil {
		return false
	}
	m.ready = ready
	return o.advance(now)
}

// Drop forgets a pod that ended, or that is to end: nobody waits for it. It reports whether more pods may start now
// than before.
func (o *Order) Drop(uid types.UID, now time.Time) bool {
	if o.pods[uid] == nil {
		return false
	}
	delete(o.pods, uid)
	return o.advance(now)
}

// Holds says for what the pod waits, and until when at most, in words for people; empty if it may start.
func (o *Order) Holds(uid types.UID, now time.Time) string {
	m := o.pods[uid]
	if o.Over(now) || m == nil || m.place <= o.reached {
		return ""
	}
	var missing []string
	for _, other := range o.pods {
		if o.awaits(other, now) {
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
