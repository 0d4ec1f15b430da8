package job

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/everynode/everynode/internal/objects/job"
)

// metrics are the controller's own, with the names, labels and buckets of
// Kubernetes'.
type metrics struct {
	syncs, finished, podsFinished, podsCreated *prometheus.CounterVec
	seconds                                    *prometheus.HistogramVec
}

// newMetrics makes the metrics and, given a registerer, registers them.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "job_controller", Name: name, Help: help}, labels)
	}
	m := &metrics{
		syncs:    counter("job_syncs_total", "Turns of looking after a Job.", "completion_mode", "result"),
		finished: counter("jobs_finished_total", "Jobs that are over.", "completion_mode", "result", "reason"),
		podsFinished: counter(
			"job_pods_finished_total", "Pods of Jobs that ended and are counted.", "completion_mode", "result",
		),
		podsCreated: counter("job_pods_creation_total", "Creations of pods of Jobs.", "status"),
		seconds: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Subsystem: "job_controller", Name: "job_sync_duration_seconds",
				Help: "Time for one turn of looking after a Job.", Buckets: prometheus.ExponentialBuckets(0.004, 2, 15)},
			[]string{"completion_mode", "result"},
		),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.syncs, m.finished, m.podsFinished, m.podsCreated, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func modeOf(j *batchv1.Job) string {
	if job.IsIndexed(j) {
		return string(batchv1.IndexedCompletion)
	}
	return string(batchv1.NonIndexedCompletion)
}

func (m *metrics) synced(j *batchv1.Job, err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.syncs.WithLabelValues(modeOf(j), result).Inc()
	m.seconds.WithLabelValues(modeOf(j), result).Observe(took.Seconds())
}

func (m *metrics) created(err error) {
	status := "succeeded"
	if err != nil {
		status = "failed"
	}
	m.podsCreated.WithLabelValues(status).Inc()
}

// reported takes in that a status was written.
func (m *metrics) reported(before, after *batchv1.Job, ended *batchv1.JobCondition) {
	mode := modeOf(after)
	m.podsFinished.WithLabelValues(mode, "succeeded").Add(float64(max(0, after.Status.Succeeded-before.Status.Succeeded)))
	m.podsFinished.WithLabelValues(mode, "failed").Add(float64(max(0, after.Status.Failed-before.Status.Failed)))
	if ended == nil {
		return
	}
	result := "succeeded"
	if ended.Type == batchv1.JobFailed {
		result = "failed"
	}
	m.finished.WithLabelValues(mode, result, ended.Reason).Inc()
}
