package scrape

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// The families of /metrics/resource.
var (
	containerLabels = []string{"container", "namespace", "pod"}
	podLabels       = []string{"namespace", "pod"}

	nodeCPU = family{
		"node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", prometheus.CounterValue,
		nil,
	}
	nodeMemory = family{
		"node_memory_working_set_bytes", "Current working set of the node in bytes", prometheus.GaugeValue, nil,
	}
	containerCPU = family{
		"container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds",
		prometheus.CounterValue, containerLabels,
	}
	containerMemory = family{
		"container_memory_working_set_bytes", "Current working set of the container in bytes", prometheus.GaugeValue,
		containerLabels,
	}
	containerStart = family{
		"container_start_time_seconds", "Start time of the container since unix epoch in seconds", prometheus.GaugeValue,
		containerLabels,
	}
	podCPU = family{
		"pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", prometheus.CounterValue,
		podLabels,
	}
	podMemory = family{
		"pod_memory_working_set_bytes", "Current working set of the pod in bytes", prometheus.GaugeValue, podLabels,
	}
	resourceError = family{
		"resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise",
		prometheus.GaugeValue, nil,
	}
	scrapeError = family{
		"scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", prometheus.GaugeValue, nil,
	}
)

// resource is /metrics/resource. Its values have the time of measuring, from which readers reckon rates.
func (p *Pages) resource(ctx context.Context, out *sink) {
	failed := 0.0
	fail := func(err error) {
		klog.FromContext(ctx).Error(err, "Could not measure what the node uses")
		failed = 1
	}
	if machine, err := p.cfg.Machine(); err != nil {
		fail(err)
	} else {
		now := time.Now()
		out.add(nodeCPU, machine.CPU.Seconds(), now)
		out.add(nodeMemory, float64(machine.Memory), now)
	}
	running, pods, err := p.look(ctx)
	if err != nil {
		fail(err)
	}
	for _, g := range running {
		if g.Container == "" {
			continue
		}
		labels := []string{g.Container, g.Namespace, g.Pod}
		out.add(containerCPU, seconds(g.stats.CPU), g.at, labels...)
		out.add(containerMemory, float64(g.stats.WorkingSet()), g.at, labels...)
		out.add(containerStart, unix(g.StartedAt), time.Time{}, labels...)
	}
	for _, g := range pods {
		out.add(podCPU, seconds(g.stats.CPU), g.at, g.Namespace, g.Pod)
		out.add(podMemory, float64(g.stats.WorkingSet()), g.at, g.Namespace, g.Pod)
	}
	out.add(resourceError, failed, time.Time{})
	out.add(scrapeError, failed, time.Time{})
}
