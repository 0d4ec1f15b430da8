package scheduler

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/fit"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/scheduler/devices"
	"github.com/everynode/everynode/internal/scheduler/placement"
	"github.com/everynode/everynode/internal/scheduler/queue"
)

// park puts a pod aside that fits no node, says why, and lets lesser pods make room for it if that helps.
func (l *loop) park(ctx context.Context, pod *fit.Pod, diagnosis *placement.Diagnosis, view placement.View) {
	view.Budgets = l.budgetList()
	preemption := l.placer.Preempt(pod, diagnosis, view)
	text := diagnosis.Message(preemption.Message)
	klog.FromContext(ctx).V(3).Info(
		"Pod fits no node", "pod", klog.KObj(pod.Object), "message", text, "preempts", preemption.Node,
	)
	l.queue.Park(
		pod.UID,
		queue.Wait{
			For:    diagnosis.HelpedBy,
			Nodes:  diagnosis.Narrowed,
			Claims: append(pod.ClaimKeys(), devices.Keys(pod.Object)...),
		},
		l.clock.Now(),
	)
	if preemption.Node == "" {
		// Where there will be room the devices can be had that the pod has, else it would not be room for it.
		l.giveBackDevices(pod)
		l.say(pod, text, l.keptNomination(pod))
		return
	}
	l.binder.metrics.preempted(len(preemption.Victims))
	for _, displaced := range preemption.Displaced {
		l.nominated.Delete(displaced.UID)
		l.binder.nominate(displaced, "")
	}
	l.nominated.Preempt(pod, preemption.Node, preemption.Victims)
	l.binder.report(pod, corev1.PodReasonUnschedulable, text, &preemption.Node)
	l.binder.preempt(pod, preemption.Node, preemption.Victims)
}

// keptNomination is the nomination to write for a pod that preempts nothing now: what it has while victims are still
// leaving its node, else none.
func (l *loop) keptNomination(pod *fit.Pod) *string {
	if l.placer.Awaits(pod, l.view()) {
		return nil
	}
	l.release(pod.Object)
	none := ""
	return &none
}

// onFailedPreemption gives up a nomination whose victims could not be removed, and tries the pod again.
func (l *loop) onFailedPreemption(uid types.UID) {
	l.nominated.Delete(uid)
	if pod := l.queue.Get(uid); pod != nil {
		l.queue.Add(pod, true, l.clock.Now())
	}
}

func (l *loop) onBudget(ctx context.Context, budget *policyv1.PodDisruptionBudget, deleted bool) {
	delete(l.budgets, budget.UID)
	if deleted {
		return
	}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		klog.FromContext(ctx).Error(
			err, "Ignored a disruption budget whose selector cannot be read", "budget", klog.KObj(budget),
		)
		return
	}
	disrupted := make(map[string]bool, len(budget.Status.DisruptedPods))
	for name := range budget.Status.DisruptedPods {
		disrupted[name] = true
	}
	l.budgets[budget.UID] = placement.Budget{
		Namespace: budget.Namespace, Selector: selector, Allowed: int(budget.Status.DisruptionsAllowed), Disrupted: disrupted,
	}
}

// budgetList is empty in most clusters.
func (l *loop) budgetList() placement.Budgets {
	budgets := make(placement.Budgets, 0, len(l.budgets))
	for _, budget := range l.budgets {
		budgets = append(budgets, budget)
	}
	return budgets
}

// preempt removes the victims for pod: each gets the condition that says why, and is deleted gracefully.
func (b *binder) preempt(pod *fit.Pod, nodeName string, victims []*fit.Pod) {
	victims = slices.Clone(victims)
	b.add(&b.others, func(ctx context.Context) {
		for _, victim := range victims {
			object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: victim.Namespace, Name: victim.Name, UID: victim.UID, Generation: victim.Generation,
			}}
			if err := b.evict(ctx, pod, victim, object); err != nil {
				klog.FromContext(ctx).Error(err, "Could not preempt pod", "victim", klog.KObj(object), "pod", klog.KObj(pod.Object))
				b.inbox.put(message{kind: kindPreemption, uid: pod.UID})
				return
			}
			klog.FromContext(ctx).V(2).Info(
				"Preempted pod", "victim", klog.KObj(object), "pod", klog.KObj(pod.Object), "node", nodeName,
			)
			b.events.preempted(object, pod.UID, nodeName)
		}
	})
}

// evict removes one victim, of which object has what names it. One that is leaving already, or gone, is no failure.
func (b *binder) evict(ctx context.Context, pod, victim *fit.Pod, object *corev1.Pod) error {
	if victim.Terminating {
		return nil
	}
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		Message:            pod.Object.Spec.SchedulerName + ": preempting to accommodate a higher priority pod",
		ObservedGeneration: victim.Generation, LastTransitionTime: b.events.now(),
	}
	if err := b.writer.PatchStatus(ctx, object, StatusPatch{Conditions: []corev1.PodCondition{condition}}); err != nil {
		return ignoreGone(err)
	}
	return ignoreGone(b.writer.Delete(ctx, object))
}

// nominate writes the node that the pod waits for.
func (b *binder) nominate(pod *fit.Pod, nodeName string) {
	b.add(&b.others, func(ctx context.Context) {
		b.patch(ctx, pod.Object, StatusPatch{NominatedNodeName: &nodeName})
	})
}

// say reports why a pod fits nowhere. To one that was told so already, other words are said when they are due.
func (l *loop) say(pod *fit.Pod, text string, nominated *string) {
	now := l.clock.Now()
	knows := podfacts.Unschedulable(pod.Object) != nil
	if knows && (nominated == nil || *nominated == pod.Object.Status.NominatedNodeName) {
		if !l.words.May(pod.UID, text, l.waitingPods(), now) {
			return
		}
	} else {
		l.words.Said(pod.UID, now)
	}
	l.binder.report(pod, corev1.PodReasonUnschedulable, text, nominated)
}

func (l *loop) waitingPods() int {
	active, backoff, parked := l.queue.Lengths()
	return active + backoff + parked
}

// sayAgain reports what was kept for pods that wait, as far as that is due.
func (l *loop) sayAgain() {
	for uid, text := range l.words.Due(l.waitingPods(), l.clock.Now()) {
		if pod := l.queue.Get(uid); pod != nil {
			l.binder.report(pod, corev1.PodReasonUnschedulable, text, nil)
		}
	}
}
