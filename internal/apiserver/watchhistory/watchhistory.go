// Package watchhistory bounds how many of a kind's changes the library's watch cache remembers.
//
// The cache keeps the changes of at least 75 seconds, for watches that were cut off and go on from where they were. Of
// kinds that have an object for each node that is most of a server's memory: a rollout on five thousand nodes writes
// each of them several times within seconds. The cache can be told no number, but it grows by the times at which its
// events were recorded. Bound makes these times run faster the more events there are, so that the wanted number spans
// those 75 seconds.
//
// A watch that wants to go on from before that is told so (410 Gone) and lists again, as after a long break.
package watchhistory

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/filtered"
)

// Bound returns the storage for a watch cache that keeps history for at least the window. The cache will remember about
// this many events; it doubles, so it may be up to twice as many.
func Bound(s storage.Interface, events int, window time.Duration, c clock.PassiveClock) storage.Interface {
	return bounded{s, window / time.Duration(events), c}
}

type bounded struct {
	storage.Interface
	// step is the least time between the records of two events.
	step  time.Duration
	clock clock.PassiveClock
}

// Watch implements storage.Interface.
func (b bounded) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	w, err := b.Interface.Watch(ctx, key, options)
	if err != nil || !options.RecordTimestamps {
		return w, err // Not the watch cache's.
	}
	var last time.Time
	return filtered.Watch(w, func(e watch.Event) watch.Event {
		if recorded, ok := e.Object.(storage.WatchEventWithRecordTime); ok {
			last = next(last, b.clock.Now(), b.step)
			e.Object = &stamped{Object: recorded.Unwrap(), at: last}
		}
		return e
	}), nil
}

// next is when an event counts as recorded: now, but not too soon after the one before.
func next(last, now time.Time, step time.Duration) time.Time {
	if earliest := last.Add(step); now.Before(earliest) {
		return earliest
	}
	return now
}

// stamped is an object with the time at which it counts as recorded. The watch cache takes both apart.
type stamped struct {
	runtime.Object
	at time.Time
}

var _ storage.WatchEventWithRecordTime = (*stamped)(nil)

// RecordTime implements storage.WatchEventWithRecordTime.
func (s *stamped) RecordTime() time.Time { return s.at }

// Unwrap implements storage.WatchEventWithRecordTime.
func (s *stamped) Unwrap() runtime.Object { return s.Object }

// DeepCopyObject implements runtime.Object.
func (s *stamped) DeepCopyObject() runtime.Object {
	return &stamped{Object: s.Object.DeepCopyObject(), at: s.at}
}

// GetObjectMeta implements metav1.ObjectMetaAccessor: the cache looks for the version before it takes the object out.
func (s *stamped) GetObjectMeta() metav1.Object {
	m, err := meta.Accessor(s.Object)
	if err != nil {
		return nil
	}
	return m
}
