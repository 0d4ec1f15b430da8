package agent

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/staticpods"
	podfacts "github.com/everynode/everynode/internal/pod"
)

// defaultGrace is how many seconds the containers of a pod have that does not say so.
const defaultGrace = corev1.DefaultTerminationGracePeriodSeconds

// admission lets a pod have room on the node, once these have ended: victims are pods that end for it, leaving are pods that the API
// no longer has.
type admission struct{ victims, leaving []*corev1.Pod }

// preempt ends pods for a critical one that has no room, if that helps, and says which. The caller holds mu.
func (p *pods) preempt(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) []*corev1.Pod {
	if conflict(pod, others) {
		return nil // it is no room that is missing
	}
	usage := func(pod *corev1.Pod) eviction.Usage {
		return eviction.Usage{Pod: pod, Static: staticpods.IsUID(pod.UID)}
	}
	candidates := make([]eviction.Usage, len(others))
	for i, other := range others {
		candidates[i] = usage(other)
	}
	victims := eviction.Preempt(usage(pod), candidates, func(left []*corev1.Pod) bool { return fits(pod, node, left) == nil })
	for _, victim := range victims {
		grace := int64(defaultGrace)
		if victim.Spec.TerminationGracePeriodSeconds != nil {
			grace = *victim.Spec.TerminationGracePeriodSeconds
		}
		if w, ok := p.workers[victim.UID]; ok {
			w.terminate(podworker.Termination{Reason: eviction.PreemptReason, Message: eviction.PreemptMessage, Grace: grace})
		}
	}
	return victims
}

// leavers returns those of the others that the API no longer has, as far as the pod needs what they have, and those that stay. Leavers
// end by themselves, but the pod must wait for that. The caller holds mu.
func (p *pods) leavers(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) (leaving, staying []*corev1.Pod) {
	for _, other := range others {
		if w, ok := p.workers[other.UID]; ok && w.isGone() {
			leaving = append(leaving, other)
		} else {
			staying = append(staying, other)
		}
	}
	if fits(pod, node, others) == nil {
		leaving = slices.DeleteFunc(leaving, func(other *corev1.Pod) bool { return !p.shareDevices(pod, other) })
	}
	return leaving, staying
}

// shareDevices reports whether both pods ask for devices of one kind.
func (p *pods) shareDevices(a, b *corev1.Pod) bool {
	asked := podfacts.Requests(b)
	for name := range podfacts.Requests(a) {
		if _, both := asked[name]; both && p.devices.Provides(name) {
			return true
		}
	}
	return false
}

// awaitEnd has the worker start nothing before these have ended, and tells of those that were ended for its pod.
func (w *worker) awaitEnd(ctx context.Context, given admission) {
	for _, pod := range given.leaving {
		w.awaited = append(w.awaited, pod.UID)
		klog.FromContext(ctx).Info("Waiting for the end of a pod that was deleted", "pod", klog.KObj(pod), "for", klog.KObj(w.in.Pod))
	}
	for _, victim := range given.victims {
		w.awaited = append(w.awaited, victim.UID)
		klog.FromContext(ctx).Info("Ending a pod for a critical one", "pod", klog.KObj(victim), "for", klog.KObj(w.in.Pod))
		w.events.pod(victim, corev1.EventTypeWarning, eviction.PreemptReason, eviction.PreemptMessage)
	}
}

// leaves takes the pod's room back, and tells those that may wait for it. The caller holds mu.
func (p *pods) leaves(uid types.UID) {
	if _, ok := p.admitted[uid]; !ok {
		return
	}
	delete(p.admitted, uid)
	for _, waiting := range p.roomFor[uid] {
		if w, ok := p.workers[waiting]; ok {
			w.poke()
		}
	}
	delete(p.roomFor, uid)
	p.retryResizes()
}

// awaitsRoom says whether the pod must wait for others to end.
func (w *worker) awaitsRoom() bool {
	w.awaited = slices.DeleteFunc(w.awaited, func(uid types.UID) bool { return !w.active(uid) })
	return len(w.awaited) > 0 && !w.in.Gone && w.in.Pod.DeletionTimestamp == nil
}
