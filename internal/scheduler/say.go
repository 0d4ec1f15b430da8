package scheduler

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/fit"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// say tells a pod why it fits nowhere. One that knows that it does not is told other words when it is its turn.
func (l *loop) say(pod *fit.Pod, text string, nominated *string) {
	now := l.clock.Now()
	if knows(pod.Object) && (nominated == nil || *nominated == pod.Object.Status.NominatedNodeName) {
		if !l.words.May(pod.UID, text, l.waitingPods(), now) {
			return
		}
	} else {
		l.words.Said(pod.UID, now)
	}
	l.binder.report(pod, corev1.PodReasonUnschedulable, text, nominated)
}

// knows reports whether a pod has been told that it fits nowhere.
func knows(pod *corev1.Pod) bool {
	c := podfacts.Condition(pod, corev1.PodScheduled)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

func (l *loop) waitingPods() int {
	active, backoff, parked := l.queue.Lengths()
	return active + backoff + parked
}

// sayAgain tells pods that wait the words whose turn it is.
func (l *loop) sayAgain() {
	for uid, text := range l.words.Due(l.waitingPods(), l.clock.Now()) {
		if pod := l.queue.Get(uid); pod != nil {
			l.binder.report(pod, corev1.PodReasonUnschedulable, text, nil)
		}
	}
}
