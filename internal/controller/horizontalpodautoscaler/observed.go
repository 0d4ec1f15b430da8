package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/horizontalpodautoscaler/plan"
)

// observed are the controller's metrics, with the names, labels and buckets of Kubernetes'.
type observed struct {
	turns, computed         *prometheus.CounterVec
	turnTook, computingTook *prometheus.HistogramVec
	desired                 *prometheus.GaugeVec
	number                  prometheus.Gauge

	mu    sync.Mutex // guards known
	known map[types.NamespacedName]bool
}

// newObserved makes the metrics and, given a registerer, registers them.
func newObserved(reg prometheus.Registerer) (*observed, error) {
	const subsystem = "horizontal_pod_autoscaler_controller"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
	}
	seconds := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}, labels)
	}
	o := &observed{
		turns:    counter("reconciliations_total", "Turns of looking after an autoscaler.", "action", "error"),
		turnTook: seconds("reconciliation_duration_seconds", "Time for one of these turns.", "action", "error"),
		computed: counter("metric_computation_total", "Metrics that were asked how many pods there should be.",
			"action", "error", "metric_type"),
		computingTook: seconds("metric_computation_duration_seconds", "Time until a metric had answered.",
			"action", "error", "metric_type"),
		desired: prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: "desired_replicas",
			Help: "How many pods an autoscaler wants its target to have."}, []string{"namespace", "hpa_name"}),
		number: prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: "num_horizontal_pod_autoscalers",
			Help: "How many autoscalers are looked after."}),
		known: map[types.NamespacedName]bool{},
	}
	if reg == nil {
		return o, nil
	}
	for _, c := range []prometheus.Collector{o.turns, o.turnTook, o.computed, o.computingTook, o.desired, o.number} {
		err := reg.Register(c)
		if err != nil {
			return nil, fmt.Errorf("register the metrics of autoscalers: %w", err)
		}
	}
	return o, nil
}

// turn takes in what became of one turn. The error is what ended it.
func (o *observed) turn(a *autoscalingv2.HorizontalPodAutoscaler, result plan.Result, err error, took time.Duration) {
	for _, said := range result.Said {
		did := action(said.Replicas, result.Status.CurrentReplicas, said.Err)
		o.computed.WithLabelValues(did, kindOf(said.Err), string(said.Type)).Inc()
		o.computingTook.WithLabelValues(did, kindOf(said.Err), string(said.Type)).Observe(said.Took.Seconds())
	}
	if err == nil {
		err = result.Err
	}
	wanted := result.Status.CurrentReplicas
	if result.Rescale {
		wanted = result.Replicas
	}
	labels := []string{action(wanted, result.Status.CurrentReplicas, nil), kindOf(err)}
	o.turns.WithLabelValues(labels...).Inc()
	o.turnTook.WithLabelValues(labels...).Observe(took.Seconds())
	o.desired.WithLabelValues(a.Namespace, a.Name).Set(float64(result.Status.DesiredReplicas))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known[client.ObjectKeyFromObject(a)] = true
	o.number.Set(float64(len(o.known)))
}

// forget takes in that an autoscaler is gone.
func (o *observed) forget(key types.NamespacedName) {
	o.desired.DeleteLabelValues(key.Namespace, key.Name)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.known, key)
	o.number.Set(float64(len(o.known)))
}

func action(wanted, now int32, err error) string {
	switch {
	case err != nil, wanted == now:
		return "none"
	case wanted > now:
		return "scale_up"
	}
	return "scale_down"
}

func kindOf(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, plan.ErrSpec):
		return "spec"
	}
	return "internal"
}
