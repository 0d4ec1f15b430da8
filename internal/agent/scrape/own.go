package scrape

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/types"
)

// Observed are the events that the agent counts.
type Observed struct {
	probes         *prometheus.CounterVec
	probeDurations *prometheus.HistogramVec
	relist         prometheus.Histogram
	relistInterval prometheus.Histogram
	pods           prometheus.Gauge
	containers     *prometheus.GaugeVec

	mu sync.Mutex
	// probed are the names of the pods that there are numbers of, by UID.
	probed map[string]types.NamespacedName
}

func newObserved() *Observed {
	name := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Subsystem: "kubelet", Name: name, Help: help}
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Subsystem: "kubelet",
			Name:      name,
			Help:      help,
			Buckets:   prometheus.DefBuckets,
		})
	}
	return &Observed{
		probed: map[string]types.NamespacedName{},
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "prober", Name: "probe_total",
			Help: "Cumulative number of a liveness, readiness or startup probe for a container by result."},
			[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		probeDurations: prometheus.NewHistogramVec(
			prometheus.HistogramOpts{Subsystem: "prober", Name: "probe_duration_seconds",
				Help: "Duration in seconds for a probe response."},
			[]string{"probe_type", "container", "pod", "namespace"},
		),
		relist:         histogram("pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG."),
		relistInterval: histogram("pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG."),
		pods: prometheus.NewGauge(prometheus.GaugeOpts(name(
			"running_pods", "Number of pods that have a running pod sandbox",
		))),
		containers: prometheus.NewGaugeVec(
			prometheus.GaugeOpts(name("running_containers", "Number of containers currently running")),
			[]string{"container_state"},
		),
	}
}

// registerOwn registers what /metrics shows.
func (p *Pages) registerOwn() {
	nodeName := prometheus.NewGaugeVec(
		prometheus.GaugeOpts{Subsystem: "kubelet", Name: "node_name", Help: "The node's name. The count is always 1."},
		[]string{"node"},
	)
	nodeName.WithLabelValues(p.cfg.NodeName).Set(1)
	build := prometheus.NewGaugeVec(
		prometheus.GaugeOpts{Name: "kubernetes_build_info", Help: "The version of the node's agent. The value is always 1."},
		[]string{"git_version"},
	)
	build.WithLabelValues(p.cfg.Version).Set(1)
	p.own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		nodeName, build, p.relist, p.relistInterval, p.pods, p.containers)
}

// Probed counts a probe; result is successful, failed or unknown.
func (o *Observed) Probed(kind, result, container, pod, namespace, podUID string, took time.Duration) {
	o.mu.Lock()
	o.probed[podUID] = types.NamespacedName{Namespace: namespace, Name: pod}
	o.mu.Unlock()
	o.probes.WithLabelValues(kind, result, container, pod, namespace, podUID).Inc()
	if result == "successful" {
		o.probeDurations.WithLabelValues(kind, container, pod, namespace).Observe(took.Seconds())
	}
}

// Unprobed forgets a pod that is gone.
func (o *Observed) Unprobed(podUID string) {
	o.mu.Lock()
	name, known := o.probed[podUID]
	delete(o.probed, podUID)
	o.mu.Unlock()
	if known {
		o.probes.DeletePartialMatch(prometheus.Labels{"pod_uid": podUID})
		o.probeDurations.DeletePartialMatch(prometheus.Labels{"pod": name.Name, "namespace": name.Namespace})
	}
}

// Relisted tells of a look through the runtime: how long it took, how long after the one before (zero for the first),
// how many pods had a sandbox that ran, and how many containers were in which state.
func (o *Observed) Relisted(took, after time.Duration, pods int, containers map[string]int) {
	o.relist.Observe(took.Seconds())
	if after > 0 {
		o.relistInterval.Observe(after.Seconds())
	}
	o.pods.Set(float64(pods))
	o.containers.Reset()
	for state, n := range containers {
		o.containers.WithLabelValues(state).Set(float64(n))
	}
}
