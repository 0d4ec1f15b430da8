package daemonset

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
)

// metrics are the controller's own, subsystem daemonset_controller.
type metrics struct {
	podsCreated  prometheus.Counter
	podsDeleted  *prometheus.CounterVec
	writesFailed prometheus.Counter
	statusWrites prometheus.Counter
	turnSeconds  prometheus.Histogram
	auditDrift   prometheus.Counter
	rollouts     *rolloutMetrics
	variants     *prometheus.GaugeVec
}

// newMetrics makes the metrics and, given a registerer, registers them.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: "daemonset_controller", Name: name, Help: help})
	}
	m := &metrics{
		podsCreated: counter("pods_created_total", "Daemon pods created."),
		podsDeleted: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "daemonset_controller",
			Name: "pods_deleted_total", Help: "Daemon pods deleted, by reason."}, []string{"reason"}),
		writesFailed: counter("writes_failed_total", "Writes to the API that were refused or not answered."),
		statusWrites: counter("status_writes_total", "DaemonSet statuses written."),
		turnSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: "daemonset_controller",
			Name: "turn_seconds", Help: "Time to take in what changed and decide, per turn of the loop.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10)}),
		auditDrift: counter(
			"audit_drift_total",
			"Differences between the running totals and a recount that the audit found and mended. Anything but 0 is a bug.",
		),
		rollouts: newRolloutMetrics(), variants: storing.NewGauge(),
	}
	if reg == nil {
		return m, nil
	}
	own := []prometheus.Collector{
		m.podsCreated, m.podsDeleted, m.writesFailed, m.statusWrites, m.turnSeconds, m.auditDrift, m.variants,
	}
	for _, c := range append(own, m.rollouts.collectors()...) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
