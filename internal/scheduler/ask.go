package scheduler

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/nodeaffinity"
)

const (
	// answeredWithin is how long somebody waits who asks for room. A scheduler that is as slow binds no sooner.
	answeredWithin = 3 * time.Second
	// silence is for how long nobody asks after an answer that did not come.
	silence = 10 * time.Second
	// seenWithin is how long room is kept for a pod that is not seen. A write has ended by then, and informers have told
	// of it.
	seenWithin = 2 * time.Minute
)

// Refusal is why no room is reserved; "" if it is.
type Refusal string

// The refusals. A pod that got one is scheduled like any other once it exists.
const (
	// NotAtWork: the scheduler has not read everything yet, or has ended.
	NotAtWork Refusal = "not-at-work"
	// NoAnswer: it did not answer in time, now or a moment ago.
	NoAnswer Refusal = "no-answer"
	// NoRoom: the pod is not one that this scheduler can give the node that it names as things are.
	NoRoom Refusal = "no-room"
)

// Reservation is room on a node for a pod that does not exist yet. It ends when the pod is seen, when Refused is
// called, or after two minutes. One for another pod of the same name takes its place, until that one is refused.
type Reservation struct {
	scheduler    *Scheduler
	node         Chosen
	uid          types.UID
	known        time.Time
	begins, ends time.Time
}

// Reserve reserves room for a pod that is about to be created and names one node by its affinity, by the rules and in
// the order by which pods are scheduled: the pods that come before it get their nodes first. It does not reserve what
// would have to be written, such as volumes for claims and devices, and removes no pods.
func (s *Scheduler) Reserve(ctx context.Context, pod *corev1.Pod) (*Reservation, Refusal) {
	now := s.config.Clock.Now()
	switch {
	case !s.atWork.Load():
		return nil, NotAtWork
	case now.UnixNano() < s.silentUntil.Load():
		return nil, NoAnswer
	}
	a := &ask{pod: fit.NewPod(pod), since: now, answer: make(chan *Reservation, 1)}
	s.inbox.put(message{kind: kindAsk, uid: pod.UID, ask: a})
	patience := s.config.Clock.NewTimer(answeredWithin)
	defer patience.Stop()
	select {
	case r := <-a.answer:
		return s.reserved(r)
	case <-patience.C():
	case <-ctx.Done():
	}
	if !a.settled.CompareAndSwap(false, true) {
		return s.reserved(<-a.answer) // it came in this moment
	}
	if ctx.Err() == nil && s.atWork.Load() {
		s.silentUntil.Store(s.config.Clock.Now().Add(silence).UnixNano())
	}
	return nil, NoAnswer
}

func (s *Scheduler) reserved(r *Reservation) (*Reservation, Refusal) {
	if r == nil {
		return nil, NoRoom
	}
	r.scheduler = s
	return r, ""
}

// Binding is what gives the room to the pod.
func (r *Reservation) Binding(pod *corev1.Pod) *corev1.Binding { return BindingOf(pod, r.node) }

// Stored tells that the pod was stored with its node. It counts as scheduled.
func (r *Reservation) Stored(ctx context.Context, pod *corev1.Pod) {
	b := r.scheduler.binder
	now := b.clock.Now()
	b.metrics.algorithmSeconds.Observe(r.ends.Sub(r.begins).Seconds())
	b.metrics.attempted(resultScheduled, now.Sub(r.begins))
	b.metrics.placed(1, now.Sub(r.known))
	klog.FromContext(ctx).V(2).Info("Created pod with its node", "pod", klog.KObj(pod), "node", r.node.Name)
	b.events.scheduled(pod, r.node.Name)
}

// Refused tells that the pod was not stored and will not be. Of one of which that is not known, nothing is told.
func (r *Reservation) Refused() {
	r.scheduler.inbox.put(message{kind: kindRefused, uid: r.uid})
}

// ask is a question for room that somebody waits for.
type ask struct {
	pod   *fit.Pod
	since time.Time
	// settled says that it is answered, or that nobody waits any more; who sets it decides.
	settled atomic.Bool
	answer  chan *Reservation
}

// reply answers, unless nobody waits any more.
func (a *ask) reply(r *Reservation) bool {
	if !a.settled.CompareAndSwap(false, true) {
		return false
	}
	a.answer <- r
	return true
}

// onAsker takes over what those say who ask for room.
func (l *loop) onAsker(m message) {
	if m.ask != nil {
		l.asks = append(l.asks, m.ask)
		return
	}
	l.endReservation(m.uid)
}

// nextAsk takes out the question that is next: no pod of the queue comes before it, and no other question. Those that
// nobody waits for are dropped.
func (l *loop) nextAsk() *ask {
	l.asks = slices.DeleteFunc(l.asks, func(a *ask) bool { return a.settled.Load() })
	if len(l.asks) == 0 {
		return nil
	}
	// There are as few as there are writers of pods that ask.
	first := slices.MinFunc(l.asks, func(a, b *ask) int {
		return cmp.Or(cmp.Compare(b.pod.Priority, a.pod.Priority), a.since.Compare(b.since))
	})
	if l.queue.Ahead(first.pod.Priority, first.since, l.clock.Now()) {
		return nil
	}
	l.asks = slices.DeleteFunc(l.asks, func(a *ask) bool { return a == first })
	return first
}

// room is what is kept for a pod.
type room struct {
	pod  *fit.Pod
	node string
}

// answerTo reserves room for a pod that does not exist yet, if it fits.
func (l *loop) answerTo(ctx context.Context, a *ask) {
	name := a.pod.String()
	// Nobody knows what became of an earlier one of that name: it may be stored, and only one of both can be. So both
	// have the same room.
	earlier, its := l.kept.Named(name)
	freed := l.cluster.Forget(earlier)
	r := l.reserve(a)
	answered := a.reply(r)
	switch {
	case r == nil:
		l.keep(earlier, its)
	case !answered:
		freed = l.cluster.Forget(a.pod.UID)
		l.keep(earlier, its)
		l.freed(freed)
	default:
		klog.FromContext(ctx).V(4).Info("Reserved room", "pod", name, "node", r.node.Name)
		l.kept.Add(a.pod.UID, name, room{a.pod, r.node.Name}, l.clock.Now())
		l.freed(freed)
		l.queue.Changed(r.node.Name, fit.PodAdded, l.clock.Now())
	}
}

// keep counts a pod that may be stored where its room is; "" is none.
func (l *loop) keep(uid types.UID, its room) {
	if uid != "" {
		l.cluster.Assume(its.pod, its.node)
	}
}

// reserve counts the pod on its node; nil if it cannot be there without a write, or not at all.
func (l *loop) reserve(a *ask) *Reservation {
	pod := a.pod
	names, named := nodeaffinity.Names(&pod.Object.Spec)
	if !named || len(names) != 1 || !ours(pod.Object) || pod.Object.Spec.NodeName != "" ||
		len(pod.Object.Spec.ResourceClaims) > 0 || l.cluster.Holds(pod.UID) {
		return nil
	}
	begins := l.clock.Now()
	result := l.placer.Place(pod, l.view())
	if result.Node == "" || len(result.Uses) > 0 {
		return nil
	}
	l.cluster.Assume(pod, result.Node)
	return &Reservation{
		node: l.chosen(result.Node), uid: pod.UID, known: a.since, begins: begins, ends: l.clock.Now(),
	}
}

// endReservation gives room back that was kept for a pod that was refused. An earlier one of its name may be stored:
// that may be why.
func (l *loop) endReservation(uid types.UID) {
	earlier, its := l.kept.Refused(uid)
	freed := l.cluster.Forget(uid)
	l.keep(earlier, its)
	l.freed(freed)
}

// endReservations gives back what was kept for too long.
func (l *loop) endReservations(ctx context.Context) {
	for _, uid := range l.kept.Due(l.clock.Now()) {
		klog.FromContext(ctx).Info("Gave back the room of a pod that was never seen", "uid", uid)
		l.freed(l.cluster.Forget(uid))
	}
}

// due returns when there is something to do without any message.
func (l *loop) due() (time.Time, bool) {
	next, ok := l.queue.Next()
	if ends, also := l.kept.Next(); also && (!ok || ends.Before(next)) {
		next, ok = ends, true
	}
	if words, also := l.words.Next(); also && (!ok || words.Before(next)) {
		next, ok = words, true
	}
	return next, ok
}
