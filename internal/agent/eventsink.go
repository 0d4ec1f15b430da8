package agent

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

// patientSink writes events, and waits with them while nobody answers: what happened meanwhile is told later, with the times at which it happened.
// What has no room in the recorder's queue, of a thousand events, is lost.
type patientSink struct {
	record.EventSink
	ctx   context.Context //nolint:containedctx // the sink's interface has none
	clock clock.Clock
}

// Create writes an event.
func (s patientSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.patiently(func() (*corev1.Event, error) { return s.EventSink.Create(e) })
}

// Update replaces an event.
func (s patientSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.patiently(func() (*corev1.Event, error) { return s.EventSink.Update(e) })
}

// Patch changes an event.
func (s patientSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.patiently(func() (*corev1.Event, error) { return s.EventSink.Patch(e, data) })
}

func (s patientSink) patiently(write func() (*corev1.Event, error)) (*corev1.Event, error) {
	for {
		got, err := write()
		if !unanswered(err) {
			return got, err
		}
		select {
		case <-s.ctx.Done():
			return got, err
		case <-s.clock.After(sinkRetry):
		}
	}
}

// unanswered says whether the error is that nobody answered.
func unanswered(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}
