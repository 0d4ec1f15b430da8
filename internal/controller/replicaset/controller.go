// Package replicaset keeps as many pods of each ReplicaSet as it wants. Package
// plan decides; apply.go acts.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
	"github.com/everynode/everynode/internal/ownwrites"
)

// EventSource is the component that the controller's events are from.
const EventSource = "replicaset-controller"

// controllerKind is how this controller's objects refer to a ReplicaSet.
var controllerKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config is what the controller needs.
type Config struct {
	// Client writes pods and the status of ReplicaSets. It must have no client-side
	// rate limit. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Workers is the number of ReplicaSets looked after at a time; 5 if zero.
	Workers int
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("replicaset: Client is required")
	}
	if cfg.Workers == 0 {
		cfg.Workers = 5
	}
	for _, object := range indexed {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), object, ownerIndex, byOwner); err != nil {
			return fmt.Errorf("index %T by their controllers: %w", object, err)
		}
	}
	r := newReconciler(mgr.GetClient(), clientWriter{cfg.Client}, cfg)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("replicaset").
		Watches(&appsv1.ReplicaSet{}, r.wrote.Owners()).
		Watches(&corev1.Pod{}, r.podHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: cfg.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the ReplicaSet controller: %w", err)
	}
	return nil
}

type reconciler struct {
	reader client.Reader // of shared objects, which are never changed
	writer writer
	events Recorder
	clock  clock.PassiveClock
	// wrote holds what the cache does not show yet of the pods that were written.
	wrote *ownwrites.Log[*corev1.Pod]
}

func newReconciler(reader client.Reader, w writer, cfg Config) *reconciler {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &reconciler{reader: reader, writer: w, events: cfg.Events, clock: cfg.Clock, wrote: ownwrites.New[*corev1.Pod](cfg.Clock)}
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var set appsv1.ReplicaSet
	if err := r.reader.Get(ctx, key.NamespacedName, &set); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read ReplicaSet %s: %w", key, err)
	}
	in, err := r.gather(ctx, &set)
	if err != nil {
		return ctrl.Result{}, err
	}
	change := plan.Decide(in)
	klog.FromContext(ctx).V(2).Info("Decided", "replicaSet", klog.KObj(&set), "create", change.Create, "delete", len(change.Delete), "reason", change.Reason)
	failure := r.apply(ctx, &set, change)
	// The status says what there is after the change: who reads that this generation
	// was seen can rely on the numbers beside it.
	if in.Pods, err = r.own(ctx, &set); err != nil {
		return ctrl.Result{}, err
	}
	report := plan.Observe(in, change, failure)
	if err := errors.Join(failure, r.report(ctx, &set, report)); err != nil {
		return ctrl.Result{}, err
	}
	if report.Next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(report.Next.Sub(in.Now), time.Millisecond)}, nil
}
