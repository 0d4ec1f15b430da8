// Package cronjob makes the Jobs of each CronJob at its times. Package plan decides;
// apply.go acts.
package cronjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/cronjob/plan"
	"github.com/everynode/everynode/internal/loop/ownwrites"
	"github.com/everynode/everynode/internal/objects/claim"
)

// EventSource is the component that the controller's events are from.
const EventSource = "cronjob-controller"

// ownerIndex finds Jobs by claim.Key.
const ownerIndex = "cronjob-controller/owner"

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config is what the controller needs.
type Config struct {
	// Client writes Jobs and the status of CronJobs. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Workers is the number of CronJobs looked after at a time; 5 if zero.
	Workers int
	// Registerer gets the controller's metrics. Optional.
	Registerer prometheus.Registerer
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("cronjob: Client is required")
	}
	if cfg.Workers == 0 {
		cfg.Workers = 5
	}
	byOwner := func(object client.Object) []string { return []string{claim.Key(object)} }
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &batchv1.Job{}, ownerIndex, byOwner); err != nil {
		return fmt.Errorf("index Jobs by their controllers: %w", err)
	}
	skew := newSkew()
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(skew); err != nil {
			return fmt.Errorf("register the metrics of the CronJob controller: %w", err)
		}
	}
	r := newReconciler(mgr.GetClient(), clientWriter{cfg.Client}, cfg, skew)
	err := ctrl.NewControllerManagedBy(mgr).
		Named("cronjob").
		Watches(&batchv1.CronJob{}, r.jobs.Owners(r.crons.Forget)).
		Watches(&batchv1.Job{}, r.jobHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: cfg.Workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the CronJob controller: %w", err)
	}
	return nil
}

// newSkew makes the metric of how late Jobs are made, with Kubernetes' name.
func newSkew() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "cronjob_controller",
		Name:      "job_creation_skew_duration_seconds",
		Help:      "Time from when a Job was due until it was made.",
		Buckets:   prometheus.ExponentialBuckets(1, 2, 10),
	})
}

type reconciler struct {
	reader client.Reader // of shared objects, which are never changed
	writer writer
	events Recorder
	clock  clock.PassiveClock
	skew   prometheus.Histogram
	// jobs and crons hold what the cache does not show yet of what was written.
	jobs  *ownwrites.Log[*batchv1.Job]
	crons *ownwrites.Log[*batchv1.CronJob]
}

func newReconciler(reader client.Reader, w writer, cfg Config, skew prometheus.Histogram) *reconciler {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &reconciler{
		reader: reader, writer: w, events: cfg.Events, clock: cfg.Clock, skew: skew,
		jobs: ownwrites.New[*batchv1.Job](cfg.Clock), crons: ownwrites.New[*batchv1.CronJob](cfg.Clock),
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// jobHandler enqueues the CronJob that controls a Job.
func (r *reconciler) jobHandler() handler.EventHandler {
	add := func(j client.Object, q queue) {
		if ref := metav1.GetControllerOfNoCopy(j); ref != nil && ref.Kind == "CronJob" {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: j.GetNamespace(), Name: ref.Name}})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				r.jobs.Gone(e.ObjectOld.GetUID())
			}
			add(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.jobs.Gone(e.Object.GetUID())
			add(e.Object, q)
		},
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var cached batchv1.CronJob
	if err := r.reader.Get(ctx, key.NamespacedName, &cached); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("read CronJob %s: %w", key, err)
	}
	c := r.crons.Overlay(cached.UID, []*batchv1.CronJob{&cached})[0]
	jobs, err := r.gather(ctx, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := plan.Decide(plan.Input{CronJob: c, Jobs: jobs, Now: r.clock.Now()})
	klog.FromContext(ctx).V(2).Info(
		"Decided", "cronJob", klog.KObj(c), "create", p.Create != nil, "reason", p.Reason, "next", p.Next,
	)
	if err := r.apply(ctx, c, p); err != nil {
		return ctrl.Result{}, err
	}
	if p.Next.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(p.Next.Sub(r.clock.Now()), time.Millisecond)}, nil
}

// gather lists the Jobs of a CronJob. Those that its status calls active and that the
// cache does not show are looked for in the API.
func (r *reconciler) gather(ctx context.Context, c *batchv1.CronJob) ([]*batchv1.Job, error) {
	var list batchv1.JobList
	if err := r.reader.List(ctx, &list, client.InNamespace(c.Namespace),
		client.MatchingFields{ownerIndex: string(c.UID)}); err != nil {
		return nil, fmt.Errorf("list the Jobs of CronJob %s: %w", klog.KObj(c), err)
	}
	var cached []*batchv1.Job
	for i := range list.Items {
		cached = append(cached, &list.Items[i])
	}
	jobs := r.jobs.Overlay(c.UID, cached)
	seen := map[types.UID]bool{}
	for _, j := range jobs {
		seen[j.UID] = true
	}
	for _, ref := range c.Status.Active {
		if seen[ref.UID] {
			continue
		}
		live, err := r.writer.GetJob(ctx, c.Namespace, ref.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read Job %s/%s, which is said to be active: %w", c.Namespace, ref.Name, err)
		}
		if err == nil && live.UID == ref.UID {
			jobs = append(jobs[:len(jobs):len(jobs)], live)
		}
	}
	return jobs, nil
}
