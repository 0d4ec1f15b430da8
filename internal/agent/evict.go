package agent

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/podworker"
)

const (
	// evictEvery is how often a node looks at what is free; evictSoon is how often while a pod that was ended still stops.
	evictEvery = 10 * time.Second
	evictSoon  = time.Second
	// limitGrace is how long the containers of a pod have that took more than it may, in seconds.
	limitGrace = 1
	// evictPatience is how long a pod that was ended is waited for, beyond its grace period, before another one is.
	evictPatience = 30 * time.Second
	// limitsWithin is how long the disk is looked at in a round for pods with limits, relieveWithin for which pod must go.
	limitsWithin, relieveWithin = 500 * time.Millisecond, 5 * time.Second
)

// evictor ends pods when the node runs short of something, and pods that take more of the disk than they may.
type evictor struct {
	node    string
	rules   eviction.Rules
	observe func(ctx context.Context) (eviction.Observations, error)
	// usage measures pods, on disk for as long as it says.
	usage func(ctx context.Context, list []*corev1.Pod, disk time.Duration) ([]eviction.Usage, error)
	// freeImages removes the images that nobody uses.
	freeImages func(ctx context.Context) error
	// report has the node's conditions brought up to date.
	report func()
	pods   *pods
	clock  clock.WithTicker

	watch eviction.Watch
	// under are the pressures at the last look.
	under atomic.Pointer[[]corev1.NodeConditionType]
	// acting are the signals that were acted on at the last look.
	acting []eviction.Signal
	// ending is the pod that was ended last to make room, since when, and how long it may take.
	ending types.UID
	since  time.Time
	grace  time.Duration
}

// run looks again and again until ctx ends.
func (e *evictor) run(ctx context.Context) {
	for {
		pause := evictEvery
		if err := e.round(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not find out whether the node is short of something")
		}
		if e.ending != "" {
			pause = evictSoon
		}
		select {
		case <-ctx.Done():
			return
		case <-e.clock.After(pause):
		}
	}
}

// round looks once. What cannot be found out of some pods, or of all, keeps nothing else from being looked at.
func (e *evictor) round(ctx context.Context) error {
	return errors.Join(e.limits(ctx), e.pressure(ctx))
}

// pressure ends a pod if the node is short of something.
func (e *evictor) pressure(ctx context.Context) error {
	if e.ending != "" {
		if e.pods.active(e.ending) && e.clock.Since(e.since) < e.grace+evictPatience {
			return nil
		}
		e.ending = ""
	}
	crossed, err := e.crossed(ctx)
	if err != nil || len(crossed) == 0 {
		return err
	}
	if crossed[0].Threshold.Signal.OnDisk() {
		ended := e.pods.discardEnded()
		imagesErr := e.freeImages(ctx)
		if ended > 0 {
			return imagesErr // what they leave may be enough
		}
		if crossed, err = e.crossed(ctx); err != nil || len(crossed) == 0 {
			return errors.Join(imagesErr, err)
		}
		return errors.Join(imagesErr, e.relieve(ctx, crossed[0]))
	}
	return e.relieve(ctx, crossed[0])
}

// pressures are those that the node is under; nil before the first look.
func (e *evictor) pressures() []corev1.NodeConditionType {
	if under := e.under.Load(); under != nil {
		return *under
	}
	return nil
}

// crossed looks which thresholds are to be acted on, and tells of what changed.
func (e *evictor) crossed(ctx context.Context) ([]eviction.Crossing, error) {
	if len(e.rules.Hard)+len(e.rules.Soft) == 0 {
		e.under.Store(&[]corev1.NodeConditionType{})
		return nil, nil
	}
	now, err := e.observe(ctx)
	if err != nil {
		return nil, err
	}
	crossed := e.watch.Look(&e.rules, now, e.clock.Now())
	under, before := e.watch.Conditions(&e.rules, e.clock.Now()), e.pressures()
	e.under.Store(&under)
	if !slices.Equal(under, before) {
		e.report()
	}
	acting := make([]eviction.Signal, len(crossed))
	for i, c := range crossed {
		acting[i] = c.Threshold.Signal
		if !slices.Contains(e.acting, c.Threshold.Signal) {
			e.pods.events.node(e.node, "EvictionThresholdMet", "Attempting to reclaim "+c.Threshold.Signal.Resource())
		}
	}
	e.acting = acting
	return crossed, nil
}

// limits ends the pods that are above their own limits on the disk.
func (e *evictor) limits(ctx context.Context) error {
	limited := slices.DeleteFunc(e.pods.activePods(), func(pod *corev1.Pod) bool { return !eviction.Limited(pod) })
	if len(limited) == 0 {
		return nil
	}
	list, err := e.usage(ctx, limited, limitsWithin)
	for i := range list {
		if message := eviction.Exceeded(&list[i]); message != "" && !list[i].Critical() {
			e.evict(ctx, &list[i], message, limitGrace)
		}
	}
	return err
}

// relieve ends the pod that must go first.
func (e *evictor) relieve(ctx context.Context, c eviction.Crossing) error {
	disk := time.Duration(0)
	if c.Threshold.Signal.OnDisk() {
		disk = relieveWithin
	}
	list, err := e.usage(ctx, e.pods.activePods(), disk)
	victim := eviction.Victim(c, list)
	if victim == nil {
		return err
	}
	e.evict(ctx, victim, eviction.Message(c, victim), e.rules.Grace(c))
	e.ending, e.since, e.grace = victim.Pod.UID, e.clock.Now(), time.Duration(e.rules.Grace(c))*time.Second
	return err
}

func (e *evictor) evict(ctx context.Context, u *eviction.Usage, message string, grace int64) {
	if !e.pods.terminate(u.Pod.UID, podworker.Termination{Reason: eviction.Reason, Message: message, Grace: grace}) {
		return
	}
	klog.FromContext(ctx).Info("Ending a pod", "pod", klog.KObj(u.Pod), "because", message)
	e.pods.events.pod(u.Pod, corev1.EventTypeWarning, eviction.Reason, message)
}
