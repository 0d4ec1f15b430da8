// Package evictor ends pods when a node runs short of something, and pods that take more of the disk than they may.
package evictor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/events"
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

// Pods are the pods of a node; pods.Manager is one.
type Pods interface {
	// Active reports whether the pod takes room on the node; ActivePods are those that do.
	Active(uid types.UID) bool
	ActivePods() []*corev1.Pod
	// Terminate ends a pod, once; false if there is nothing to end.
	Terminate(uid types.UID, t podworker.Termination) bool
	// DiscardEnded has the pods that ended leave nothing in the runtime, and returns how many were not told before.
	DiscardEnded() int
}

// Config says what is looked at, and who acts.
type Config struct {
	NodeName string
	Rules    eviction.Rules
	Observe  func(ctx context.Context) (eviction.Observations, error)
	// Usage measures pods, on disk for as long as it says.
	Usage func(ctx context.Context, list []*corev1.Pod, disk time.Duration) ([]eviction.Usage, error)
	// FreeImages removes the images that nobody uses.
	FreeImages func(ctx context.Context) error
	// Report has the node's conditions brought up to date.
	Report func()
	Pods   Pods
	Events events.Recorder
	Clock  clock.WithTicker
}

// Evictor ends pods when the node runs short of something, and pods that take more of the disk than they may.
type Evictor struct {
	cfg Config

	watch eviction.Watch
	// under are the pressures at the last look.
	under atomic.Pointer[[]corev1.NodeConditionType]
	// acting are the signals that were acted on at the last look.
	acting []eviction.Signal
	// ending is the pod that was ended last to make room, since when, and how long it may take.
	ending types.UID
	since  time.Time
	grace  time.Duration
	// vain are the pods that were waited for in vain, and are still there: something keeps them from ending.
	vain map[types.UID]bool
}

// New returns an Evictor; Run begins it.
func New(cfg Config) *Evictor { return &Evictor{cfg: cfg, vain: map[types.UID]bool{}} }

// Run looks again and again until ctx ends.
func (e *Evictor) Run(ctx context.Context) {
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
		case <-e.cfg.Clock.After(pause):
		}
	}
}

// round looks once. What cannot be found out of some pods, or of all, keeps nothing else from being looked at.
func (e *Evictor) round(ctx context.Context) error {
	return errors.Join(e.limits(ctx), e.pressure(ctx))
}

// pressure ends a pod if the node is short of something.
func (e *Evictor) pressure(ctx context.Context) error {
	if e.ending != "" {
		there := e.cfg.Pods.Active(e.ending)
		if there && e.cfg.Clock.Since(e.since) < e.grace+evictPatience {
			return nil
		}
		e.vain[e.ending] = there
		e.ending = ""
	}
	maps.DeleteFunc(e.vain, func(uid types.UID, _ bool) bool { return !e.cfg.Pods.Active(uid) })
	crossed, err := e.crossed(ctx)
	if err != nil || len(crossed) == 0 {
		return err
	}
	if crossed[0].Threshold.Signal.OnDisk() {
		ended := e.cfg.Pods.DiscardEnded()
		imagesErr := e.cfg.FreeImages(ctx)
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

// Pressures are those that the node is under; nil before the first look.
func (e *Evictor) Pressures() []corev1.NodeConditionType {
	if under := e.under.Load(); under != nil {
		return *under
	}
	return nil
}

// crossed looks which thresholds are to be acted on, and tells of what changed.
func (e *Evictor) crossed(ctx context.Context) ([]eviction.Crossing, error) {
	if len(e.cfg.Rules.Hard)+len(e.cfg.Rules.Soft) == 0 {
		e.under.Store(&[]corev1.NodeConditionType{})
		return nil, nil
	}
	now, err := e.cfg.Observe(ctx)
	if err != nil {
		return nil, err
	}
	crossed := e.watch.Look(&e.cfg.Rules, now, e.cfg.Clock.Now())
	under, before := e.watch.Conditions(&e.cfg.Rules, e.cfg.Clock.Now()), e.Pressures()
	e.under.Store(&under)
	if !slices.Equal(under, before) {
		e.cfg.Report()
	}
	acting := make([]eviction.Signal, len(crossed))
	for i, c := range crossed {
		acting[i] = c.Threshold.Signal
		if !slices.Contains(e.acting, c.Threshold.Signal) {
			e.cfg.Events.Node(e.cfg.NodeName, "EvictionThresholdMet", "Attempting to reclaim "+c.Threshold.Signal.Resource())
		}
	}
	e.acting = acting
	return crossed, nil
}

// limits ends the pods that are above their own limits on the disk.
func (e *Evictor) limits(ctx context.Context) error {
	limited := slices.DeleteFunc(e.cfg.Pods.ActivePods(), func(pod *corev1.Pod) bool { return !eviction.Limited(pod) })
	if len(limited) == 0 {
		return nil
	}
	list, err := e.cfg.Usage(ctx, limited, limitsWithin)
	for i := range list {
		if message := eviction.Exceeded(&list[i]); message != "" && !list[i].Critical() {
			e.evict(ctx, &list[i], message, limitGrace)
		}
	}
	return err
}

// relieve ends the pod that must go first, of those that were not waited for in vain.
func (e *Evictor) relieve(ctx context.Context, c eviction.Crossing) error {
	disk := time.Duration(0)
	if c.Threshold.Signal.OnDisk() {
		disk = relieveWithin
	}
	list, err := e.cfg.Usage(ctx, e.cfg.Pods.ActivePods(), disk)
	victim := eviction.Victim(c, list)
	for victim != nil {
		uid := victim.Pod.UID
		if e.evict(ctx, victim, eviction.Message(c, victim), e.cfg.Rules.Grace(c)) || !e.vain[uid] {
			break
		}
		list = slices.DeleteFunc(list, func(u eviction.Usage) bool { return u.Pod.UID == uid })
		victim = eviction.Victim(c, list)
	}
	if victim == nil {
		return err
	}
	e.ending, e.since, e.grace = victim.Pod.UID, e.cfg.Clock.Now(), time.Duration(e.cfg.Rules.Grace(c))*time.Second
	return err
}

// evict has a pod end; false if it is to end already.
func (e *Evictor) evict(ctx context.Context, u *eviction.Usage, message string, grace int64) bool {
	if !e.cfg.Pods.Terminate(u.Pod.UID, podworker.Termination{Reason: eviction.Reason, Message: message, Grace: grace}) {
		return false
	}
	klog.FromContext(ctx).Info("Ending a pod", "pod", klog.KObj(u.Pod), "because", message)
	e.cfg.Events.Pod(u.Pod, corev1.EventTypeWarning, eviction.Reason, message)
	return true
}
