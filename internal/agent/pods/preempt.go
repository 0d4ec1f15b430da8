package pods

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/podworker"
)

// defaultGrace is how many seconds the containers of a pod have that does not say so.
const defaultGrace = corev1.DefaultTerminationGracePeriodSeconds

// makeRoom ends a pod for a critical one that has no room. The caller holds mu.
func (p *Manager) makeRoom(victim *corev1.Pod) {
	grace := int64(defaultGrace)
	if victim.Spec.TerminationGracePeriodSeconds != nil {
		grace = *victim.Spec.TerminationGracePeriodSeconds
	}
	p.leavesOrder(victim.UID)
	if w, ok := p.workers[victim.UID]; ok {
		w.terminate(podworker.Termination{Reason: eviction.PreemptReason, Message: eviction.PreemptMessage, Grace: grace})
	}
}

// awaitEnd has the worker start nothing before these have ended, and tells of those that were ended for its pod.
func (w *worker) awaitEnd(ctx context.Context, given podadmission.Admission) {
	for _, pod := range given.Leaving {
		w.awaited = append(w.awaited, pod.UID)
		klog.FromContext(ctx).Info("Waiting for the end of a pod that was deleted", "pod", klog.KObj(pod), "for",
			klog.KObj(w.in.Pod))
	}
	for _, victim := range given.Victims {
		w.awaited = append(w.awaited, victim.UID)
		klog.FromContext(ctx).Info("Ending a pod for a critical one", "pod", klog.KObj(victim), "for", klog.KObj(w.in.Pod))
		w.cfg.Events.Pod(victim, corev1.EventTypeWarning, eviction.PreemptReason, eviction.PreemptMessage)
	}
}

// leaves takes the pod's room back, and tells those that may wait for it. The caller holds mu.
func (p *Manager) leaves(uid types.UID) {
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

// awaitsRoom says whether the pod must wait for others to end. One that is to end itself waits for nobody.
func (w *worker) awaitsRoom() bool {
	w.awaited = slices.DeleteFunc(w.awaited, func(uid types.UID) bool { return !w.home.Active(uid) })
	return len(w.awaited) > 0 && !w.in.Gone && w.in.Pod.DeletionTimestamp == nil && !w.memory.ToEnd()
}
