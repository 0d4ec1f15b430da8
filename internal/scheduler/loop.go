package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/scheduler/devices"
	"github.com/everynode/everynode/internal/scheduler/placement"
	"github.com/everynode/everynode/internal/scheduler/queue"
	"github.com/everynode/everynode/internal/scheduler/rephrase"
	"github.com/everynode/everynode/internal/scheduler/reservations"
)

// loop is the one goroutine that decides. Nothing in it is shared.
type loop struct {
	inbox  *inbox
	binder *binder
	events *recorder
	clock  clock.WithTicker

	queue     *queue.Queue
	cluster   *fit.Cluster
	nominated *placement.Nominations
	placer    *placement.Placer
	budgets   map[types.UID]placement.Budget
	devices   *devices.Book
	words     *rephrase.Book
	// late are pods, by UID, with a binding that had no answer: until when it may still be done.
	late map[types.UID]time.Time
	// follow has the book of devices filled from now on.
	follow func()
	// asks are those who ask for room for pods that do not exist yet, and kept are those that got it.
	asks []*ask
	kept *reservations.Book[room]
	// toCome is that of the configuration.
	toCome func(*fit.Node) []*fit.Pod
}

func newLoop(config Config, inbox *inbox, binder *binder, events *recorder) *loop {
	l := &loop{
		inbox: inbox, binder: binder, events: events, clock: config.Clock,
		queue:     queue.New(config.Queue),
		cluster:   fit.NewCluster(),
		nominated: placement.NewNominations(),
		placer:    placement.New(config.Seed),
		budgets:   map[types.UID]placement.Budget{},
		devices:   devices.New(config.Clock),
		words:     rephrase.New(),
		late:      map[types.UID]time.Time{},
		follow:    func() {},
		kept:      reservations.New[room](seenWithin),
		toCome:    config.ToCome,
	}
	l.cluster.FollowVolumes()
	l.cluster.FollowDevices(l.devices)
	return l
}

func (l *loop) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.drain(ctx)
		l.endReservations(ctx)
		l.sayAgain()
		l.binder.metrics.waiting(l.queue.Lengths())
		if a := l.nextAsk(); a != nil {
			l.answerTo(ctx, a)
			continue
		}
		if pod := l.queue.Pop(l.clock.Now()); pod != nil {
			l.schedule(ctx, pod)
			continue
		}
		l.wait(ctx)
	}
}

// wait returns when there is a message, the queue's next delay is over, or a reservation ends.
func (l *loop) wait(ctx context.Context) {
	var due <-chan time.Time
	if next, ok := l.due(); ok {
		timer := l.clock.NewTimer(next.Sub(l.clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-l.inbox.wake:
	case <-due:
	}
}

func (l *loop) drain(ctx context.Context) {
	for _, m := range l.inbox.take() {
		switch m.kind {
		case kindNode:
			l.onNode(m.object.(*corev1.Node), m.deleted)
		case kindPod:
			l.onPod(m.object.(*corev1.Pod), m.deleted)
		case kindBudget:
			l.onBudget(ctx, m.object.(*policyv1.PodDisruptionBudget), m.deleted)
		case kindNamespace:
			if m.deleted {
				l.cluster.DeleteNamespace(m.object.GetName())
			} else {
				l.cluster.SetNamespace(m.object.GetName(), m.object.GetLabels())
			}
		case kindClaim, kindVolume, kindClass:
			l.onStorage(m)
		case kindDevices:
			l.onDevices(m)
		case kindDevicesKnown:
			l.devices.Known()
			l.devicesChanged("")
		case kindSettled:
			l.onSettled(m)
		case kindClaiming:
			l.onFailedClaiming(ctx, m)
		case kindOutcome:
			l.onFailedBinding(ctx, m)
		case kindPreemption:
			l.onFailedPreemption(m.uid)
		case kindAsk, kindRefused:
			l.onAsker(m)
		}
	}
}

func (l *loop) onNode(node *corev1.Node, deleted bool) {
	if deleted {
		l.cluster.DeleteNode(node.Name)
		return
	}
	l.queue.Changed(node.Name, l.cluster.SetNode(node), l.clock.Now())
}

func (l *loop) onPod(pod *corev1.Pod, deleted bool) {
	l.kept.Seen(pod.UID)
	if deleted || terminal(pod) || pod.Spec.NodeName != "" || !ours(pod) {
		l.words.Forget(pod.UID)
	}
	switch {
	case deleted || terminal(pod):
		delete(l.late, pod.UID)
		l.queue.Delete(pod.UID)
		l.release(pod)
		l.freed(l.cluster.DeletePod(pod.UID))
	case pod.Spec.NodeName != "":
		delete(l.late, pod.UID)
		l.queue.Delete(pod.UID)
		l.nominated.Delete(pod.UID)
		known := l.cluster.Holds(pod.UID)
		l.freed(l.cluster.SetPod(pod))
		if !known {
			l.queue.Changed(pod.Spec.NodeName, fit.PodAdded, l.clock.Now())
		}
	case !ours(pod):
		l.queue.Delete(pod.UID)
		l.release(pod)
	default:
		l.waiting(pod)
	}
}

// waiting takes over the state of a pod that needs a node.
func (l *loop) waiting(pod *corev1.Pod) {
	facts := fit.NewPod(pod)
	known := l.queue.Get(pod.UID)
	if len(pod.Spec.ResourceClaims) > 0 {
		l.follow()
	}
	changed := known != nil && (!equality.Semantic.DeepEqual(known.Object.Spec, pod.Spec) ||
		!equality.Semantic.DeepEqual(known.Object.Status.ResourceClaimStatuses, pod.Status.ResourceClaimStatuses))
	// What was decided here stands until the API says something new: the write may still be under way.
	nominated := l.nominated.Node(pod.UID)
	if known == nil || known.Object.Status.NominatedNodeName != pod.Status.NominatedNodeName {
		nominated = pod.Status.NominatedNodeName
	}
	l.nominated.Set(facts, nominated)
	l.queue.Add(facts, changed, l.clock.Now())
}

// release takes back what was promised to a pod that will not use it.
func (l *loop) release(pod *corev1.Pod) {
	if nodeName := l.nominated.Node(pod.UID); nodeName != "" {
		l.nominated.Delete(pod.UID)
		l.freed(nodeName)
	}
}

// freed tells the waiting pods that the node has room again; "" is no node.
func (l *loop) freed(nodeName string) {
	if nodeName != "" {
		l.queue.Changed(nodeName, fit.PodRemoved, l.clock.Now())
	}
}

// onFailedBinding puts a pod back that was assumed on a node but could not be bound.
func (l *loop) onFailedBinding(ctx context.Context, m message) {
	l.freed(l.cluster.Forget(m.uid))
	l.takeBackDevices(m.gifts)
	pod := l.queue.Get(m.uid)
	if pod == nil {
		return
	}
	l.queue.Retry(m.uid, l.clock.Now())
	if len(pod.Object.Spec.ResourceClaims) > 0 && !refused(m.err) && !apierrors.IsConflict(m.err) {
		l.late[m.uid] = l.clock.Now().Add(latest)
	}
	if apierrors.IsNotFound(m.err) || apierrors.IsConflict(m.err) {
		// The pod was deleted or bound by someone else, or the node is another one by now: the watch will say which.
		klog.FromContext(ctx).V(2).Info("Binding was refused", "pod", klog.KObj(pod.Object), "err", m.err)
		return
	}
	l.binder.report(pod, corev1.PodReasonSchedulerError, m.err.Error(), nil)
}

// schedule places one pod, or parks it and says why.
func (l *loop) schedule(ctx context.Context, pod *fit.Pod) {
	logger := klog.FromContext(ctx)
	l.words.Old(pod.UID)
	if until := l.devices.Attempt(pod.Object); !until.IsZero() {
		l.postpone(pod, until, devices.TextPause)
		return
	}
	view := l.view()
	try := attempt{begins: l.clock.Now()}
	try.number, try.known = l.queue.History(pod.UID)
	result := l.placer.Place(pod, view)
	l.binder.metrics.algorithmSeconds.Observe(l.clock.Since(try.begins).Seconds())
	if len(result.Uses) > 0 {
		l.claim(ctx, pod, result)
		return
	}
	if result.Node != "" {
		gifts, ok := l.giveDevices(ctx, pod, result.Node)
		if !ok {
			l.queue.Retry(pod.UID, l.clock.Now())
			return
		}
		logger.V(4).Info("Placed pod", "pod", klog.KObj(pod.Object), "node", result.Node)
		l.cluster.Assume(pod, result.Node)
		l.nominated.Delete(pod.UID)
		l.queue.Changed(result.Node, fit.PodAdded, l.clock.Now())
		l.binder.bind(pod, l.chosen(result.Node), gifts, try)
		return
	}
	l.park(ctx, pod, &result.Diagnosis, view)
	l.binder.metrics.attempted(resultUnschedulable, l.clock.Since(try.begins))
}

// chosen is the node of that name as decisions know it.
func (l *loop) chosen(name string) Chosen {
	out := Chosen{Name: name}
	if node := l.cluster.Node(name); node != nil {
		out.UID = node.UID
	}
	return out
}

// view is what a placement looks at now, without the budgets.
func (l *loop) view() placement.View {
	return placement.View{Cluster: l.cluster, Nominated: l.nominated, ToCome: l.toCome}
}

// worthSaying is the pause that is worth a write to each pod that waits.
const worthSaying = time.Second

// postpone puts a pod aside for a while without having tried, and says why, once and if that takes long.
func (l *loop) postpone(pod *fit.Pod, until time.Time, text string) {
	l.queue.Postpone(pod.UID, until)
	if until.Sub(l.clock.Now()) < worthSaying {
		return
	}
	if _, news := notScheduled(pod.Object, corev1.PodReasonUnschedulable, text, l.events.now()); news {
		l.binder.report(pod, corev1.PodReasonUnschedulable, text, nil)
	}
}

// ours reports whether a pod without a node is to be scheduled here and now.
func ours(pod *corev1.Pod) bool {
	return pod.Spec.SchedulerName == Name && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
