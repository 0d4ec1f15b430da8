package actors

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/everynode/everynode/internal/beside"
)

// The limit of client-go on what one component tells about one object: so many events at once, then one in five
// minutes.
const (
	eventBurst = 25
	eventQPS   = 1. / 300.
	// eventObjects is how many objects are told apart; of others the limit begins again.
	eventObjects = 4096
)

// limitedRecorder drops good news that client-go would drop. It does so before anything is made of them: client-go
// compares an event with earlier ones, and computes a patch, before it drops it, and a rollout tells of every pod.
// Warnings are few, and repeated ones are counted, so they all go to client-go.
type limitedRecorder struct {
	record.EventRecorder
	clock clock.PassiveClock

	mu       sync.Mutex // guards the cache between a look and a change
	limiters *lru.Cache // flowcontrol.PassiveRateLimiter by types.UID
}

// NewLimitedRecorder returns a recorder that drops what the limit does not let through.
func NewLimitedRecorder(to record.EventRecorder, c clock.PassiveClock) *limitedRecorder {
	return &limitedRecorder{EventRecorder: to, clock: c, limiters: lru.New(eventObjects)}
}

// Event implements record.EventRecorder.
func (r *limitedRecorder) Event(object runtime.Object, eventtype, reason, message string) {
	if r.lets(object, eventtype, reason) {
		r.EventRecorder.Event(object, eventtype, reason, message)
	}
}

// Eventf implements record.EventRecorder.
func (r *limitedRecorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	if r.lets(object, eventtype, reason) {
		r.EventRecorder.Eventf(object, eventtype, reason, messageFmt, args...)
	}
}

// AnnotatedEventf implements record.EventRecorder.
func (r *limitedRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventtype, reason,
	messageFmt string, args ...any) {
	if r.lets(object, eventtype, reason) {
		r.EventRecorder.AnnotatedEventf(object, annotations, eventtype, reason, messageFmt, args...)
	}
}

func (r *limitedRecorder) lets(object runtime.Object, eventtype, reason string) bool {
	m, err := meta.Accessor(object)
	if eventtype != corev1.EventTypeNormal || ofRollout(reason) || err != nil || m.GetUID() == "" {
		return true
	}
	return r.limiter(m.GetUID()).TryAccept()
}

// ofRollout: what an operator must learn of a rollout is seldom, and does not wait
// behind a thousand pods that were made, or one that cannot be deleted again and again.
func ofRollout(reason string) bool {
	return strings.HasPrefix(reason, "Rollout") || reason == beside.StoredAsBefore || reason == beside.WrongRevision
}

// NewBroadcaster makes a broadcaster whose filter against floods counts the events of
// rollouts by reason, apart from all others of the object.
func NewBroadcaster(ctx context.Context) record.EventBroadcaster {
	return record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		SpamKeyFunc: spamKey,
	}))
}

// spamKey is that of the events which are counted together.
func spamKey(e *corev1.Event) string {
	o := &e.InvolvedObject
	key := []string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion}
	if ofRollout(e.Reason) {
		key = append(key, e.Reason)
	}
	return strings.Join(key, "/")
}

func (r *limitedRecorder) limiter(uid types.UID) flowcontrol.PassiveRateLimiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.limiters.Get(uid); ok {
		return known.(flowcontrol.PassiveRateLimiter)
	}
	fresh := flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(eventQPS, eventBurst, r.clock)
	r.limiters.Add(uid, fresh)
	return fresh
}
