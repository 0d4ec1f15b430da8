// Package placing has the pods of daemons created with their node: one write in place of a creation and a binding. It
// does so where that is the same to everybody but those who watch pods, and where the scheduler works in this process.
//
//	DaemonSet controller -> API: admission, validation -> [way, scheduler, admission of the binding] -> database
//
// The question is asked at the last moment before the write, so that admission and validation have seen the pod as one
// without a node, and that the scheduler judges it as it will be stored. A pod that gets no node is stored without one,
// and scheduled like any other.
package placing

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/registry/pod"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/server/placing/way"
)

// Room is room on a node that is kept for a pod which does not exist yet.
type Room interface {
	// Binding is what gives it to the pod.
	Binding(p *corev1.Pod) *corev1.Binding
	// Stored tells that the pod was stored with its node.
	Stored(ctx context.Context, p *corev1.Pod)
	// Refused tells that it was not, and will not be. Of one of which that is not known nothing is told.
	Refused()
}

// Config says with whom pods are placed. Only Metrics may be nil, and counts for nobody then.
type Config struct {
	// Scheduler is what the pods name that the scheduler of this process gives their nodes.
	Scheduler string
	// Reserve has the scheduler keep room for a pod; nil, and why, if it does not.
	Reserve func(ctx context.Context, p *corev1.Pod) (room Room, why string)
	// Admit is the scheduler's binding of a pod after authorization and admission. Nothing is written.
	Admit func(ctx context.Context, b *corev1.Binding) (*corev1.Binding, error)
	// Watched says whether admission that somebody configured is about bindings.
	Watched func() bool
	Metrics prometheus.Registerer
}

// refusedBinding is why a pod is left to the scheduler whose binding admission refuses: it tries, and tells why not.
const refusedBinding = "binding-refused"

// Writer is the DaemonSet controller's writer, which creates pods with their node.
type Writer struct {
	executor.Writer
	Config
	placed prometheus.Counter
	left   *prometheus.CounterVec
}

// New returns the writer that does everything but the creation of pods as next does.
func New(next executor.Writer, c Config) (*Writer, error) {
	const subsystem = "daemonset_controller"
	w := &Writer{
		Writer: next, Config: c,
		placed: prometheus.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: "pods_created_with_node_total",
			Help: "Daemon pods that were created with their node, in one write."}),
		left: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "pods_left_to_scheduler_total",
			Help: "Daemon pods that were created without a node, for the scheduler to bind, by why."}, []string{"reason"}),
	}
	if c.Metrics == nil {
		return w, nil
	}
	for _, m := range []prometheus.Collector{w.placed, w.left} {
		if err := c.Metrics.Register(m); err != nil {
			return nil, fmt.Errorf("register the metrics of how daemon pods get their nodes: %w", err)
		}
	}
	return w, nil
}

// CreatePod implements executor.Writer.
func (w *Writer) CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	b := &birth{Writer: w, outer: ctx}
	created, err := w.Writer.CreatePod(pod.PlacedBy(ctx, b), p)
	switch {
	case err == nil && b.room != nil:
		w.placed.Inc()
		b.room.Stored(ctx, created)
	case err == nil && b.why != "":
		w.left.WithLabelValues(b.why).Inc()
	case err != nil && b.room != nil && refused(err):
		b.room.Refused()
	}
	return created, err //nolint:wrapcheck // It is next's.
}

// refused tells a write that was refused from one that may have been done: its room is kept until it is seen.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500
}

// birth is the creation of one pod.
type birth struct {
	*Writer
	// outer is the context of who creates the pod. That of the write is the API's, and has its record.
	outer context.Context //nolint:containedctx // It ends with the call that made it.
	room  Room
	why   string
}

// Place implements pod.Placer.
func (b *birth) Place(ctx context.Context, p *corev1.Pod) *corev1.Binding {
	if why := way.Of(p, b.Scheduler, b.Watched()); why != "" {
		b.why = string(why)
		return nil
	}
	room, why := b.Reserve(ctx, p)
	if room == nil {
		b.why = why
		return nil
	}
	b.room = room
	binding, err := b.Admit(b.outer, room.Binding(p))
	if err != nil {
		b.Refuse(ctx, p, err)
		return nil
	}
	return binding
}

// Refuse implements pod.Placer.
func (b *birth) Refuse(ctx context.Context, p *corev1.Pod, err error) {
	klog.FromContext(ctx).V(2).Info("Pod is left to be bound", "pod", klog.KObj(p), "err", err)
	b.room.Refused()
	b.room, b.why = nil, refusedBinding
}
