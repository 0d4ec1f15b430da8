// Package statefulset keeps the pods of each StatefulSet: numbered, each under its
// name. Package plan decides; apply.go acts. See README.md.
package statefulset

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

	"github.com/everynode/everynode/internal/controller/statefulset/plan"
	"github.com/everynode/everynode/internal/loop/ownwrites"
	"github.com/everynode/everynode/internal/loop/podwriter"
)

// EventSource is the component that the controller's events are from.
const EventSource = "statefulset-controller"

// controllerKind is how this controller's objects refer to a StatefulSet.
var controllerKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config is what the controller needs.
type Config struct {
	// Client writes pods, revisions and the status of StatefulSets. It must have no
	// client-side rate limit. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
	// Normalize fills in what a template leaves out. A revision of an earlier version,
	// which had fewer defaults, is then recognized.
	Normalize func(*corev1.PodTemplateSpec)
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Workers is the number of StatefulSets looked after at a time; 5 if zero.
	Workers int
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("statefulset: Client is required")
	}
	if cfg.Workers == 0 {
		cfg.Workers = 5
	}
	for _, object := range []client.Object{&corev1.Pod{}, &appsv1.ControllerRevision{}} {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), object, ownerIndex, byOwner); err != nil {
			return fmt.Errorf("index %T by their controllers: %w", object, err)
		}
	}
	r := newReconciler(mgr.GetClient(), clientWriter{podwriter.Writer{Client: cfg.Client}}, cfg)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("statefulset").
		Watches(&appsv1.StatefulSet{}, r.pods.Owners(r.revisions.Forget, r.sets.Forget)).
		Watches(&corev1.Pod{}, r.podHandler()).
		Watches(&appsv1.ControllerRevision{}, r.revisionHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: cfg.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the StatefulSet controller: %w", err)
	}
	return nil
}

type reconciler struct {
	reader    client.Reader // of shared objects, which are never changed
	writer    writer
	events    Recorder
	normalize func(*corev1.PodTemplateSpec)
	clock     clock.PassiveClock
	// These hold what the cache does not show yet of what was written.
	pods      *ownwrites.Log[*corev1.Pod]
	revisions *ownwrites.Log[*appsv1.ControllerRevision]
	sets      *ownwrites.Log[*appsv1.StatefulSet]
}

func newReconciler(reader client.Reader, w writer, cfg Config) *reconciler {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &reconciler{
		reader: reader, writer: w, events: cfg.Events, normalize: cfg.Normalize, clock: cfg.Clock,
		pods: ownwrites.New[*corev1.Pod](cfg.Clock), revisions: ownwrites.New[*appsv1.ControllerRevision](cfg.Clock),
		sets: ownwrites.New[*appsv1.StatefulSet](cfg.Clock),
	}
}

// claimPause is how long a write about a claim that met a newer version waits for the cache.
const claimPause = 100 * time.Millisecond

// mostSteps ends a turn that does not come to an end by itself; others are waiting.
const mostSteps = 5

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var cached appsv1.StatefulSet
	if err := r.reader.Get(ctx, key.NamespacedName, &cached); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read StatefulSet %s: %w", key, err)
	}
	set := r.sets.Overlay(cached.UID, []*appsv1.StatefulSet{&cached})[0]
	in := plan.Input{Set: set, Now: r.clock.Now()}
	var err error
	in.Pods, err = r.gather(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.settleClaims(ctx, set, in.Pods); err != nil {
		if overtaken(err) {
			return ctrl.Result{RequeueAfter: claimPause}, nil
		}
		return ctrl.Result{}, err
	}
	versions, err := r.settleRevisions(ctx, set)
	if err != nil || versions == nil {
		return ctrl.Result{}, err
	}
	in.Update, in.Current = versions.update, versions.current
	result, err := r.settle(ctx, in)
	if err != nil {
		return patient(result, err)
	}
	return result, r.cleanUp(ctx, set, in.Pods, versions)
}

// settle takes one step after the other until there is none.
func (r *reconciler) settle(ctx context.Context, in plan.Input) (_ ctrl.Result, err error) {
	var failure error
	for range mostSteps {
		step := plan.Next(in)
		klog.FromContext(ctx).V(2).Info(
			"Decided", "statefulSet", klog.KObj(in.Set), "create", len(step.Create), "delete", len(step.Delete), "status",
			step.Status != nil, "reason", step.Reason,
		)
		switch {
		case step.Acts():
			failure = errors.Join(failure, r.apply(ctx, in.Set, step))
			in.Hold = true
		case step.Status != nil:
			next, err := r.report(ctx, in.Set, *step.Status)
			if err != nil || next == nil {
				return ctrl.Result{}, errors.Join(failure, err)
			}
			in.Set = next
		case failure != nil:
			return ctrl.Result{}, failure
		case in.Hold && plan.More(in):
			return ctrl.Result{RequeueAfter: time.Millisecond}, nil
		case step.Next.IsZero():
			return ctrl.Result{}, nil
		default:
			return ctrl.Result{RequeueAfter: max(step.Next.Sub(r.clock.Now()), time.Millisecond)}, nil
		}
		in.Now = r.clock.Now()
		in.Pods, err = r.own(ctx, in.Set)
		if err != nil {
			return ctrl.Result{}, errors.Join(failure, err)
		}
	}
	return ctrl.Result{RequeueAfter: time.Millisecond}, failure
}
