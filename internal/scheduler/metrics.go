package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The results of an attempt to schedule a pod.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

// metrics are the scheduler's own. Names, labels and buckets are those of
// Kubernetes' scheduler, so that dashboards made for it work.
type metrics struct {
	attempts         *prometheus.CounterVec
	attemptSeconds   *prometheus.HistogramVec
	algorithmSeconds prometheus.Histogram
	podSeconds       *prometheus.HistogramVec
	podAttempts      prometheus.Histogram
	pending          *prometheus.GaugeVec
	preemptions      prometheus.Counter
	victims          prometheus.Histogram
}

// newMetrics makes the metrics and, given a registerer, registers them.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	const subsystem = "scheduler"
	histogram := func(name, help string, start float64, count int) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Subsystem: subsystem,
			Name:      name,
			Help:      help,
			Buckets:   prometheus.ExponentialBuckets(start, 2, count),
		}
	}
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: "schedule_attempts_total",
			Help: "Attempts to schedule pods, by result: scheduled, unschedulable (no node fits), error."},
			[]string{"profile", "result"}),
		attemptSeconds: prometheus.NewHistogramVec(histogram("scheduling_attempt_duration_seconds",
			"Time of an attempt to schedule a pod, with the binding.", 0.001, 15), []string{"profile", "result"}),
		algorithmSeconds: prometheus.NewHistogram(histogram(
			"scheduling_algorithm_duration_seconds", "Time to choose a node.", 0.001, 15,
		)),
		podSeconds: prometheus.NewHistogramVec(histogram("pod_scheduling_sli_duration_seconds",
			"Time from when a pod came to be scheduled until it was bound, by its number of attempts.", 0.01, 20),
			[]string{"attempts"}),
		podAttempts: prometheus.NewHistogram(histogram(
			"pod_scheduling_attempts", "Attempts until a pod was scheduled.", 1, 5,
		)),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: "pending_pods",
			Help: "Pods that wait: active (to be tried now), backoff (tried lately), unschedulable (no node fits)."},
			[]string{"queue"}),
		preemptions: prometheus.NewCounter(prometheus.CounterOpts{
			Subsystem: subsystem,
			Name:      "preemption_attempts_total",
			Help:      "Preemptions begun.",
		}),
		victims: prometheus.NewHistogram(histogram("preemption_victims", "Pods that one preemption removes.", 1, 7)),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.attempts, m.attemptSeconds, m.algorithmSeconds, m.podSeconds, m.podAttempts, m.pending, m.preemptions, m.victims,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// attempted counts an attempt that took this long.
func (m *metrics) attempted(result string, took time.Duration) {
	m.attempts.WithLabelValues(Name, result).Inc()
	m.attemptSeconds.WithLabelValues(Name, result).Observe(took.Seconds())
}

// placed counts a pod that has got its node, and how long it waited for it.
func (m *metrics) placed(attempts int, waited time.Duration) {
	m.podAttempts.Observe(float64(attempts))
	m.podSeconds.WithLabelValues(attemptsLabel(attempts)).Observe(waited.Seconds())
}

// attemptsLabel keeps the number of series small.
func attemptsLabel(attempts int) string {
	const most = 15
	if attempts > most {
		return "15+"
	}
	return strconv.Itoa(attempts)
}

func (m *metrics) waiting(active, backoff, parked int) {
	m.pending.WithLabelValues("active").Set(float64(active))
	m.pending.WithLabelValues("backoff").Set(float64(backoff))
	m.pending.WithLabelValues("unschedulable").Set(float64(parked))
}

func (m *metrics) preempted(victims int) {
	m.preemptions.Inc()
	m.victims.Observe(float64(victims))
}
