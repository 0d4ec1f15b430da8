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
)

// defaultGrace is how many seconds the containers of a pod have that does not say so.
const defaultGrace = corev1.DefaultTerminationGracePeriodSeconds

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
		p.roomFor[victim.UID] = append(p.roomFor[victim.UID], pod.UID)
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

// awaitEnd has the worker start nothing before these have ended, and tells of it.
func (w *worker) awaitEnd(ctx context.Context, victims []*corev1.Pod) {
	for _, victim := range victims {
		w.victims = append(w.victims, victim.UID)
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
	w.victims = slices.DeleteFunc(w.victims, func(uid types.UID) bool { return !w.active(uid) })
	return len(w.victims) > 0 && !w.in.Gone && w.in.Pod.DeletionTimestamp == nil
}
