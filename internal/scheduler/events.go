package scheduler

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// maxEvents is how many events wait to be written; more are dropped, for an event must never hold up scheduling.
	maxEvents = 16384
	// maxNote is the longest message of an event, in bytes.
	maxNote = 1024
	// reasonScheduled is why there is an event of a pod that got its node.
	reasonScheduled = "Scheduled"
)

// EventSink stores events.
type EventSink interface {
	Create(ctx context.Context, event *corev1.Event) (*corev1.Event, error)
	Patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error)
}

type clientSink struct{ client kubernetes.Interface }

// NewEventSink returns the EventSink that goes through a client.
func NewEventSink(client kubernetes.Interface) EventSink { return clientSink{client} }

func (s clientSink) Create(ctx context.Context, event *corev1.Event) (*corev1.Event, error) {
	return s.client.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
}

func (s clientSink) Patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.client.CoreV1().Events(event.Namespace).Patch(
		ctx, event.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
	)
}

// recorder writes events one after another, behind everyone's back: they share the API server with the bindings, and
// nobody waits for an event. Repeated events become counts.
type recorder struct {
	sink       EventSink
	clock      clock.PassiveClock
	correlator *record.EventCorrelator

	mu       sync.Mutex
	ready    *sync.Cond
	queued   []*corev1.Event
	dropped  int
	lastName int64
	stopped  bool
}

func newRecorder(sink EventSink, clock clock.PassiveClock) *recorder {
	r := &recorder{sink: sink, clock: clock, correlator: record.NewEventCorrelator(clock)}
	r.ready = sync.NewCond(&r.mu)
	return r
}

func (r *recorder) now() metav1.Time { return metav1.NewTime(r.clock.Now()) }

func (r *recorder) scheduled(pod *corev1.Pod, nodeName string) {
	r.add(
		pod, corev1.EventTypeNormal, reasonScheduled,
		fmt.Sprintf("Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, nodeName),
	)
}

func (r *recorder) failedScheduling(pod *corev1.Pod, text string) {
	r.add(pod, corev1.EventTypeWarning, "FailedScheduling", text)
}

func (r *recorder) preempted(victim *corev1.Pod, by types.UID, nodeName string) {
	r.add(victim, corev1.EventTypeNormal, "Preempted", fmt.Sprintf("Preempted by pod %s on node %s", by, nodeName))
}

func (r *recorder) add(pod *corev1.Pod, eventType, reason, text string) {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queued) >= maxEvents {
		r.dropped++
		return
	}
	// Names are made from the time; two events of one moment need two names.
	r.lastName = max(now.UnixNano(), r.lastName+1)
	r.queued = append(r.queued, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: util.GenerateEventName(pod.Name, r.lastName)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion,
		},
		Type: eventType, Reason: reason, Message: truncate(text), Count: 1,
		Source:              corev1.EventSource{Component: Name},
		ReportingController: Name,
		FirstTimestamp:      metav1.NewTime(now),
		LastTimestamp:       metav1.NewTime(now),
	})
	r.ready.Signal()
}

// run writes events until stop.
func (r *recorder) run(ctx context.Context) {
	for {
		event, dropped := r.next()
		if event == nil {
			return
		}
		if dropped > 0 {
			klog.FromContext(ctx).Info("Dropped events, too many were waiting", "count", dropped)
		}
		if err := r.write(ctx, event); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(
				err, "Could not record event", "pod", klog.KRef(event.Namespace, event.InvolvedObject.Name), "reason", event.Reason,
			)
		}
	}
}

func (r *recorder) next() (*corev1.Event, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.stopped && len(r.queued) == 0 {
		r.ready.Wait()
	}
	if r.stopped {
		return nil, 0
	}
	event, dropped := r.queued[0], r.dropped
	r.queued, r.dropped = r.queued[1:], 0
	return event, dropped
}

func (r *recorder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.ready.Broadcast()
}

func (r *recorder) write(ctx context.Context, event *corev1.Event) error {
	if event.Reason == reasonScheduled {
		// A pod gets its node once: there is no earlier one like it to count up, and with thousands of pods those that are
		// counted would be forgotten over it.
		return r.create(ctx, event)
	}
	result, err := r.correlator.EventCorrelate(event)
	if err != nil {
		return fmt.Errorf("compare event with earlier ones: %w", err)
	}
	if result.Skip {
		return nil
	}
	written, err := r.store(ctx, result)
	if err != nil {
		return unlessMoot(err)
	}
	r.correlator.UpdateState(written)
	return nil
}

func (r *recorder) create(ctx context.Context, event *corev1.Event) error {
	if _, err := r.sink.Create(ctx, event); err != nil {
		return unlessMoot(fmt.Errorf("create event %s/%s: %w", event.Namespace, event.Name, err))
	}
	return nil
}

// unlessMoot drops an error of an event that is there already, or has no place any more.
func unlessMoot(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// store counts an event up that was written before, or writes a new one, also when the old one has expired.
func (r *recorder) store(ctx context.Context, result *record.EventCorrelateResult) (*corev1.Event, error) {
	event := result.Event
	if event.Count > 1 {
		written, err := r.sink.Patch(ctx, event, result.Patch)
		if err == nil {
			return written, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("count event %s/%s up: %w", event.Namespace, event.Name, err)
		}
	}
	event.ResourceVersion = ""
	written, err := r.sink.Create(ctx, event)
	if err != nil {
		return nil, fmt.Errorf("create event %s/%s: %w", event.Namespace, event.Name, err)
	}
	return written, nil
}

func truncate(text string) string {
	const dots = " ..."
	if len(text) <= maxNote {
		return text
	}
	return text[:maxNote-len(dots)] + dots
}
