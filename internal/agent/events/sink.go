package events

import (
	"context"
	"errors"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// sinkRetry is how long an event waits that nobody took.
const sinkRetry = 10 * time.Second

// Sink writes events, and waits with them while nobody answers: what happened meanwhile is told later, with the times
// at which it happened.
// What has no room in the recorder's queue, of a thousand events, is lost.
type Sink struct {
	record.EventSink
	Context context.Context //nolint:containedctx // the sink's interface has none
	Clock   clock.Clock
}

// Create writes an event.
func (s Sink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.patiently(func() (*corev1.Event, error) { return s.EventSink.Create(e) })
}

// Update replaces an event.
func (s Sink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.patiently(func() (*corev1.Event, error) { return s.EventSink.Update(e) })
}

// Patch changes an event.
func (s Sink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.patiently(func() (*corev1.Event, error) { return s.EventSink.Patch(e, data) })
}

func (s Sink) patiently(write func() (*corev1.Event, error)) (*corev1.Event, error) {
	for {
		got, err := write()
		if !Unanswered(err) {
			return got, err
		}
		select {
		case <-s.Context.Done():
			return got, err
		case <-s.Clock.After(sinkRetry):
		}
	}
}

// Unanswered reports whether the error is that nobody answered.
func Unanswered(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err)
}
