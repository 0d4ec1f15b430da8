// Package metrics has what the DaemonSet controller counts and shows.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
)

// Metrics are the controller's own, subsystem daemonset_controller.
type Metrics struct {
	PodsCreated  prometheus.Counter
	PodsDeleted  *prometheus.CounterVec
	WritesFailed prometheus.Counter
	StatusWrites prometheus.Counter
	TurnSeconds  prometheus.Histogram
	AuditDrift   prometheus.Counter
	Rollouts     *Rollouts
	Variants     *prometheus.GaugeVec
}

// New makes the metrics and, given a registerer, registers them.
func New(reg prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: "daemonset_controller", Name: name, Help: help})
	}
	m := &Metrics{
		PodsCreated: counter("pods_created_total", "Daemon pods created."),
		PodsDeleted: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "daemonset_controller",
			Name: "pods_deleted_total", Help: "Daemon pods deleted, by reason."}, []string{"reason"}),
		WritesFailed: counter("writes_failed_total", "Writes to the API that were refused or not answered."),
		StatusWrites: counter("status_writes_total", "DaemonSet statuses written."),
		TurnSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: "daemonset_controller",
			Name: "turn_seconds", Help: "Time to take in what changed and decide, per turn of the loop.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10)}),
		AuditDrift: counter(
			"audit_drift_total",
			"Differences between the running totals and a recount that the audit found and mended. Anything but 0 is a bug.",
		),
		Rollouts: newRollouts(), Variants: storing.NewGauge(),
	}
	if reg == nil {
		return m, nil
	}
	own := []prometheus.Collector{
		m.PodsCreated, m.PodsDeleted, m.WritesFailed, m.StatusWrites, m.TurnSeconds, m.AuditDrift, m.Variants,
	}
	for _, c := range append(own, m.Rollouts.collectors()...) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
