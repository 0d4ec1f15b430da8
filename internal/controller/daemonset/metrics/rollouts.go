package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// Rollouts tell where each rollout stands.
type Rollouts struct {
	phase, nodes, failed, failures, step *prometheus.GaugeVec
	stops                                *prometheus.CounterVec
	// last is the phase that was shown last, by DaemonSet.
	last map[types.NamespacedName]v1alpha1.Phase
}

func newRollouts() *Rollouts {
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Namespace: "everynode", Subsystem: "rollout", Name: name, Help: help},
			append([]string{"namespace", "daemonset"}, more...),
		)
	}
	return &Rollouts{
		phase:  gauge("phase", "1 for the phase that the rollout is in.", "phase"),
		nodes:  gauge("nodes", "Nodes by verdict.", "verdict"),
		failed: gauge("failed_nodes", "Nodes on which the target revision is known to fail."),
		failures: gauge(
			"failures",
			"Nodes on which the target revision is known to fail, by why: Restarts, ImagePull, ContainerStart, "+
				"OutOfMemory, NotInTime, Refused, NoRoom, StoppedAnswering, NodeFault, or Unknown after a restart.",
			"reason",
		),
		step: gauge("step_nodes", "Nodes of the furthest step that has begun, by whether they are done.", "step", "done"),
		stops: prometheus.NewCounterVec(
			prometheus.CounterOpts{Namespace: "everynode", Subsystem: "rollout", Name: "stops_total",
				Help: "Rollouts that were halted or rolled back."},
			[]string{"namespace", "daemonset", "phase"},
		),
		last: map[types.NamespacedName]v1alpha1.Phase{},
	}
}

func (m *Rollouts) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.phase, m.nodes, m.failed, m.failures, m.step, m.stops}
}

// Show takes a status as it is to be written.
func (m *Rollouts) Show(a *action.UpdateRollout) {
	s := &a.Status
	name := types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
	was, known := m.last[name]
	m.Forget(name)
	m.last[name] = s.Phase
	m.phase.WithLabelValues(a.Namespace, a.Name, string(s.Phase)).Set(1)
	for verdict, n := range s.Counts {
		m.nodes.WithLabelValues(a.Namespace, a.Name, verdict).Set(float64(n))
	}
	failed := 0
	if f := s.Failures; f != nil {
		failed = len(f.Nodes) + int(f.More)
	}
	m.failed.WithLabelValues(a.Namespace, a.Name).Set(float64(failed))
	for reason, n := range a.Failing {
		m.failures.WithLabelValues(a.Namespace, a.Name, string(reason)).Set(float64(n))
	}
	for i := range s.Steps {
		if step := &s.Steps[i]; step.Name == s.Step {
			m.step.WithLabelValues(a.Namespace, a.Name, step.Name, "true").Set(float64(step.Done))
			m.step.WithLabelValues(a.Namespace, a.Name, step.Name, "false").Set(float64(step.Nodes - step.Done))
		}
	}
	stopped := s.Phase == v1alpha1.PhaseHalted || s.Phase == v1alpha1.PhaseRolledBack
	if stopped && known && was != s.Phase {
		m.stops.WithLabelValues(a.Namespace, a.Name, string(s.Phase)).Inc()
	}
}

// Forget drops the gauges of a rollout that is no more.
func (m *Rollouts) Forget(t types.NamespacedName) {
	delete(m.last, t)
	labels := prometheus.Labels{"namespace": t.Namespace, "daemonset": t.Name}
	for _, g := range []*prometheus.GaugeVec{m.phase, m.nodes, m.failed, m.failures, m.step} {
		g.DeletePartialMatch(labels)
	}
}
