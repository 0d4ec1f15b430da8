// Package replicaset keeps as many pods of each ReplicaSet, and of each
// ReplicationController, as it wants. Package plan decides; apply.go acts.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/controller/replicaset/plan"
	"github.com/everynode/everynode/internal/loop/ownwrites"
)

// The components that the controllers' events are from.
const (
	EventSource            = "replicaset-controller"
	ReplicationEventSource = "replication-controller"
)

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Account is what one of the two kinds is kept with.
type Account struct {
	// Client writes pods and the status of sets. It must have no client-side
	// rate limit. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
}

// Config is what the controllers need.
type Config struct {
	// ReplicaSets and ReplicationControllers are kept in the same way, each with an account.
	ReplicaSets, ReplicationControllers Account
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Workers is the number of sets of a kind looked after at a time; 5 if zero.
	Workers int
}

// Add puts the controllers under the manager, which runs them while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.ReplicaSets.Client == nil || cfg.ReplicationControllers.Client == nil {
		return errors.New("replicaset: a Client for each kind is required")
	}
	if cfg.Workers == 0 {
		cfg.Workers = 5
	}
	for _, object := range indexed {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), object, ownerIndex, byOwner); err != nil {
			return fmt.Errorf("index %T by their controllers: %w", object, err)
		}
	}
	for _, a := range []struct {
		kind    kind
		account Account
	}{{replicaSets, cfg.ReplicaSets}, {replicationControllers, cfg.ReplicationControllers}} {
		r := newReconciler(mgr.GetClient(), a.kind, a.kind.writer(a.account.Client), a.account.Events, cfg.Clock)
		err := ctrl.NewControllerManagedBy(mgr).
			Named(strings.ToLower(a.kind.gvk.Kind)).
			Watches(a.kind.object(), r.wrote.Owners()).
			Watches(&corev1.Pod{}, r.podHandler()).
			WithOptions(controller.Options{MaxConcurrentReconciles: cfg.Workers}).
			Complete(r)
		if err != nil {
			return fmt.Errorf("add the controller of %ss: %w", a.kind.gvk.Kind, err)
		}
	}
	return nil
}

type reconciler struct {
	kind   kind
	reader client.Reader // of shared objects, which are never changed
	writer writer
	events Recorder
	clock  clock.PassiveClock
	// wrote holds what the cache does not show yet of the pods that were written.
	wrote *ownwrites.Log[*corev1.Pod]
}

func newReconciler(reader client.Reader, k kind, w writer, events Recorder, c clock.PassiveClock) *reconciler {
	if c == nil {
		c = clock.RealClock{}
	}
	return &reconciler{kind: k, reader: reader, writer: w, events: events, clock: c, wrote: ownwrites.New[*corev1.Pod](c)}
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	object := r.kind.object()
	if err := r.reader.Get(ctx, key.NamespacedName, object); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read %s %s: %w", r.kind.gvk.Kind, key, err)
	}
	set := r.kind.set(object)
	in, err := r.gather(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	change := plan.Decide(in)
	klog.FromContext(ctx).V(2).Info(
		"Decided", r.kind.key, klog.KObj(set), "create", change.Create, "delete", len(change.Delete), "reason", change.Reason,
	)
	failure := r.apply(ctx, set, change)
	// The status says what there is after the change: who reads that this generation
	// was seen can rely on the numbers beside it.
	in.Pods, err = r.own(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	report := plan.Observe(in, change, failure)
	if err := errors.Join(failure, r.report(ctx, set, report)); err != nil {
		return ctrl.Result{}, err
	}
	if report.Next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(report.Next.Sub(in.Now), time.Millisecond)}, nil
}
