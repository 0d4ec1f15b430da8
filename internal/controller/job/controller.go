// Package job runs the pods of each Job until enough of them have succeeded.
// Package plan decides; apply.go acts. See README.md.
package job

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/controller/job/plan"
	"github.com/everynode/everynode/internal/loop/ownwrites"
	"github.com/everynode/everynode/internal/loop/podwriter"
	"github.com/everynode/everynode/internal/objects/job"
)

// EventSource is the component that the controller's events are from.
const EventSource = "job-controller"

// controllerKind is how this controller's objects refer to a Job.
var controllerKind = batchv1.SchemeGroupVersion.WithKind("Job")

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config is what the controller needs.
type Config struct {
	// Client writes pods and the status of Jobs. It must have no client-side rate
	// limit. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Workers is the number of Jobs looked after at a time; 5 if zero.
	Workers int
	// Registerer gets the controller's metrics. Optional.
	Registerer prometheus.Registerer
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("job: Client is required")
	}
	if cfg.Workers == 0 {
		cfg.Workers = 5
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, ownerIndex, byOwner); err != nil {
		return fmt.Errorf("index pods by their controllers: %w", err)
	}
	metrics, err := newMetrics(cfg.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics of the Job controller: %w", err)
	}
	r := newReconciler(mgr.GetClient(), clientWriter{podwriter.Writer{Client: cfg.Client}}, cfg, metrics)
	err = ctrl.NewControllerManagedBy(mgr).
		Named("job").
		Watches(&batchv1.Job{}, r.pods.Owners(r.forget)).
		Watches(&corev1.Pod{}, r.podHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: cfg.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the Job controller: %w", err)
	}
	o := &orphans{reader: mgr.GetClient(), writer: r.writer}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("job-orphans").
		Watches(&corev1.Pod{}, o.podHandler()).
		Watches(&batchv1.Job{}, o.jobHandler()).
		Complete(o)
	if err != nil {
		return fmt.Errorf("add the controller of pods without their Jobs: %w", err)
	}
	return nil
}

type reconciler struct {
	reader  client.Reader // of shared objects, which are never changed
	writer  writer
	events  Recorder
	clock   clock.PassiveClock
	metrics *metrics
	// pods and jobs hold what the cache does not show yet of what was written.
	pods *ownwrites.Log[*corev1.Pod]
	jobs *ownwrites.Log[*batchv1.Job]

	mu       sync.Mutex // guards failures
	failures map[types.UID]plan.Failures
}

func newReconciler(reader client.Reader, w writer, cfg Config, m *metrics) *reconciler {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &reconciler{
		reader: reader, writer: w, events: cfg.Events, clock: cfg.Clock, metrics: m, failures: map[types.UID]plan.Failures{},
		pods: ownwrites.New[*corev1.Pod](cfg.Clock), jobs: ownwrites.New[*batchv1.Job](cfg.Clock),
	}
}

// mostSteps ends a turn that does not come to an end by itself; others are waiting.
const mostSteps = 20

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var cached batchv1.Job
	if err := r.reader.Get(ctx, key.NamespacedName, &cached); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read Job %s: %w", key, err)
	}
	in := plan.Input{
		Job:      r.jobs.Overlay(cached.UID, []*batchv1.Job{&cached})[0],
		Failures: r.remembered(cached.UID),
		Now:      r.clock.Now(),
	}
	if !plan.Mine(in.Job) {
		return ctrl.Result{}, nil
	}
	begin := r.clock.Now()
	result, err := r.settle(ctx, in)
	r.metrics.synced(in.Job, err, r.clock.Since(begin))
	return result, err
}

// settle takes one step after the other until there is none.
func (r *reconciler) settle(ctx context.Context, in plan.Input) (ctrl.Result, error) {
	var failure error
	var err error
	in.Pods, err = r.gather(ctx, in.Job)
	if err != nil {
		return ctrl.Result{}, err
	}
	for range mostSteps {
		in.Failures = in.Failures.Remember(in.Job, in.Pods)
		r.remember(in.Job, in.Failures)
		step := plan.Next(in)
		klog.FromContext(ctx).V(2).Info(
			"Decided", "job", klog.KObj(in.Job), "create", len(step.Create), "delete", len(step.Delete),
			"release", len(step.Release), "status", step.Status != nil, "reason", step.Reason,
		)
		switch {
		case step.Status != nil:
			next, err := r.report(ctx, in.Job, step)
			if err != nil || next == nil {
				return ctrl.Result{}, errors.Join(failure, err)
			}
			in.Job = next
		case len(step.Create) > 0 || len(step.Delete) > 0:
			if err := r.apply(ctx, in.Job, step); !errors.Is(err, errGone) {
				failure = errors.Join(failure, err)
			}
			in.Hold = true
		case len(step.Release) > 0:
			switch err := r.release(ctx, in.Job, step.Release); {
			case errors.Is(err, errGone):
				return ctrl.Result{RequeueAfter: together}, failure
			case err != nil:
				return ctrl.Result{}, errors.Join(failure, err)
			}
		default:
			return r.rest(in, step), failure
		}
		in.Now = r.clock.Now()
		in.Pods, err = r.own(ctx, in.Job)
		if err != nil {
			return ctrl.Result{}, errors.Join(failure, err)
		}
	}
	return ctrl.Result{RequeueAfter: time.Millisecond}, failure
}

// rest says when to look again.
func (r *reconciler) rest(in plan.Input, step plan.Step) ctrl.Result {
	switch {
	case in.Hold && plan.More(in):
		return ctrl.Result{RequeueAfter: time.Millisecond}
	case step.Next.IsZero():
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(step.Next.Sub(r.clock.Now()), time.Millisecond)}
}

func (r *reconciler) remembered(uid types.UID) plan.Failures {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures[uid]
}

func (r *reconciler) remember(j *batchv1.Job, f plan.Failures) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if job.Finished(j) != nil {
		delete(r.failures, j.UID)
		return
	}
	r.failures[j.UID] = f
}

// forget drops everything about a Job that is gone.
func (r *reconciler) forget(uid types.UID) {
	r.jobs.Forget(uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failures, uid)
}
