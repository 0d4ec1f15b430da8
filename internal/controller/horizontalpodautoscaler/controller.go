// Package horizontalpodautoscaler changes the number of pods of Deployments and the like, as metrics ask for.
// Package plan decides; apply.go acts.
package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/everynode/everynode/internal/controller/horizontalpodautoscaler/plan"
)

// EventSource is the component that the controller's events are from.
const EventSource = "horizontal-pod-autoscaler"

// workers is how many autoscalers are looked after at a time: each waits for the answers of others.
const workers = 5

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Metrics reads what metrics say.
type Metrics interface {
	// Read asks one metric of an autoscaler of that namespace, about the pods that a selector chooses.
	Read(ctx context.Context, namespace string, metric *autoscalingv2.MetricSpec, pods labels.Selector) plan.Reading
}

// Config is what the controller needs.
type Config struct {
	// Writer writes, and reads the scales of targets, which no cache holds. Required.
	Writer Writer
	// Metrics is required.
	Metrics Metrics
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Registerer takes the metrics; nil for nobody.
	Registerer prometheus.Registerer
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Writer == nil || cfg.Metrics == nil {
		return errors.New("horizontalpodautoscaler: Writer and Metrics are required")
	}
	// Its own writes of the status are no news to it: it looks again when its time has come.
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	r, err := newReconciler(mgr.GetClient(), cfg)
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("horizontalpodautoscaler").
		For(&autoscalingv2.HorizontalPodAutoscaler{}, changed).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add the controller of HorizontalPodAutoscalers: %w", err)
	}
	return nil
}

// memory is what is known of an autoscaler beside the API.
type memory struct {
	uid     types.UID
	history plan.History
	// selector chooses the pods of its target.
	selector labels.Selector
}

type reconciler struct {
	reader  client.Reader // of shared objects, which are never changed
	writer  Writer
	metrics Metrics
	events  Recorder
	clock   clock.PassiveClock
	// observed counts what is done.
	observed *observed

	mu       sync.Mutex
	memories map[types.NamespacedName]memory
}

func newReconciler(reader client.Reader, cfg Config) (*reconciler, error) {
	o, err := newObserved(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &reconciler{
		reader: reader, writer: cfg.Writer, metrics: cfg.Metrics, events: cfg.Events, clock: cfg.Clock,
		observed: o, memories: map[types.NamespacedName]memory{},
	}, nil
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var a autoscalingv2.HorizontalPodAutoscaler
	err := r.reader.Get(ctx, key.NamespacedName, &a)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read autoscaler %s: %w", key, err)
	}
	if err != nil || a.DeletionTimestamp != nil {
		r.forget(key.NamespacedName)
		return ctrl.Result{}, nil
	}
	began := r.clock.Now()
	result, err := r.turn(ctx, &a)
	r.observed.turn(&a, result, err, r.clock.Since(began))
	return again(err)
}

// turn looks after one autoscaler once.
func (r *reconciler) turn(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) (plan.Result, error) {
	past := r.recall(a)
	target, scale, err := r.writer.Scale(ctx, a)
	if err != nil {
		result := plan.Unreachable(a, past.history, err, r.clock.Now())
		return result, r.apply(ctx, a, result)
	}
	in, selector, err := r.gather(ctx, a, scale, past.history)
	if err != nil {
		return plan.Result{Status: a.Status}, err
	}
	result := plan.Decide(in)
	if result.Err != nil {
		klog.FromContext(ctx).V(2).Info("Metrics say too little", "autoscaler", klog.KObj(a), "error", result.Err.Error())
	}
	if result.Rescale {
		result = r.rescale(ctx, target, in, result)
	}
	r.remember(a, memory{uid: a.UID, history: result.History, selector: selector})
	return result, r.apply(ctx, a, result)
}

func again(err error) (ctrl.Result, error) {
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: plan.Resync}, nil
}

// gather reads what the decision depends on. The selector is nil if it cannot be read.
func (r *reconciler) gather(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler, scale plan.Scale,
	past plan.History) (
	plan.Input, labels.Selector, error) {
	in := plan.Input{Autoscaler: a, Scale: scale, Past: past, Now: r.clock.Now()}
	if !plan.NeedsMetrics(a, scale) {
		return in, nil, nil
	}
	selector, err := labels.Parse(scale.Selector)
	switch {
	case scale.Selector == "":
		in.SelectorErr = &plan.Failure{Reason: "SelectorRequired",
			Err: errors.New("the HPA target's scale is missing a selector")}
		return in, nil, nil
	case err != nil:
		in.SelectorErr = &plan.Failure{Reason: "InvalidSelector",
			Err: fmt.Errorf("read the selector of the HPA target's scale: %w", err)}
		return in, nil, nil
	}
	var pods corev1.PodList
	err = r.reader.List(ctx, &pods, client.InNamespace(a.Namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return in, nil, fmt.Errorf("list the pods of autoscaler %s: %w", klog.KObj(a), err)
	}
	in.Pods = pods.Items
	if others := r.rivals(a, in.Pods); len(others) > 0 {
		text := fmt.Sprintf("pods by selector %s are controlled by multiple HPAs: [%s]", selector, strings.Join(others, " "))
		in.SelectorErr = &plan.Failure{Reason: plan.Ambiguous, Err: errors.New(text)}
		return in, selector, nil
	}
	for i := range a.Spec.Metrics {
		began := r.clock.Now()
		reading := r.metrics.Read(ctx, a.Namespace, &a.Spec.Metrics[i], selector)
		reading.Took = r.clock.Since(began)
		in.Readings = append(in.Readings, reading)
	}
	in.Now = r.clock.Now() // the answers may have taken long
	return in, selector, nil
}

// rivals are the autoscalers that choose one of these pods, with this one, or none if no other does.
func (r *reconciler) rivals(a *autoscalingv2.HorizontalPodAutoscaler, pods []corev1.Pod) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for key, m := range r.memories {
		if key.Namespace != a.Namespace || key.Name == a.Name || m.selector == nil {
			continue
		}
		if slices.ContainsFunc(pods, func(p corev1.Pod) bool { return m.selector.Matches(labels.Set(p.Labels)) }) {
			out = append(out, key.String())
		}
	}
	if len(out) > 0 {
		out = append(out, client.ObjectKeyFromObject(a).String())
	}
	slices.Sort(out)
	return out
}

// recall returns what is remembered of the autoscaler, and nothing of another one of its name.
func (r *reconciler) recall(a *autoscalingv2.HorizontalPodAutoscaler) memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memories[client.ObjectKeyFromObject(a)]
	if m.uid != a.UID {
		return memory{}
	}
	return m
}

func (r *reconciler) remember(a *autoscalingv2.HorizontalPodAutoscaler, m memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memories[client.ObjectKeyFromObject(a)] = m
}

func (r *reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memories, key)
	r.observed.forget(key)
}
