package scrape

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cgroups"
)

// groupLabels are those of everything that has a cgroup.
var groupLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

// column is a metric that is read from a cgroup's statistics.
type column struct {
	family
	read func(s *cgroups.Usage) float64
}

func counter(name, help string, read func(s *cgroups.Usage) float64) column {
	return column{family{name, help, prometheus.CounterValue, groupLabels}, read}
}

func gauge(name, help string, read func(s *cgroups.Usage) float64) column {
	return column{family{name, help, prometheus.GaugeValue, groupLabels}, read}
}

var columns = []column{
	counter(
		"container_cpu_user_seconds_total",
		"Cumulative user cpu time consumed in seconds.", func(s *cgroups.Usage) float64 {
			return seconds(s.UserCPU)
		},
	),
	counter(
		"container_cpu_system_seconds_total",
		"Cumulative system cpu time consumed in seconds.", func(s *cgroups.Usage) float64 {
			return seconds(s.KernelCPU)
		},
	),
	counter(
		"container_cpu_cfs_periods_total",
		"Number of elapsed enforcement period intervals.", func(s *cgroups.Usage) float64 {
			return float64(s.Periods)
		},
	),
	counter(
		"container_cpu_cfs_throttled_periods_total",
		"Number of throttled period intervals.", func(s *cgroups.Usage) float64 {
			return float64(s.Throttled)
		},
	),
	counter(
		"container_cpu_cfs_throttled_seconds_total", "Total time duration the container has been throttled.",
		func(s *cgroups.Usage) float64 {
			return seconds(s.ThrottledTime)
		},
	),
	gauge(
		"container_memory_usage_bytes",
		"Current memory usage in bytes, including all memory regardless of when it was accessed",
		func(s *cgroups.Usage) float64 {
			return float64(s.Memory)
		},
	),
	gauge("container_memory_working_set_bytes", "Current working set in bytes.", func(s *cgroups.Usage) float64 {
		return float64(s.WorkingSet())
	}),
	gauge("container_memory_rss", "Size of RSS in bytes.", func(s *cgroups.Usage) float64 { return float64(s.RSS) }),
	gauge("container_memory_cache", "Number of bytes of page cache memory.", func(s *cgroups.Usage) float64 {
		return float64(s.Cache)
	}),
	gauge("container_memory_mapped_file", "Size of memory mapped files in bytes.", func(s *cgroups.Usage) float64 {
		return float64(s.MappedFile)
	}),
	gauge("container_memory_swap", "Container swap usage in bytes.", func(s *cgroups.Usage) float64 {
		return float64(s.Swap)
	}),
	gauge("container_memory_max_usage_bytes", "Maximum memory usage recorded in bytes", func(s *cgroups.Usage) float64 {
		return float64(s.MostMemory)
	}),
	counter("container_memory_failcnt", "Number of memory usage hits limits", func(s *cgroups.Usage) float64 {
		return float64(s.MemoryFailures)
	}),
	gauge("container_spec_memory_limit_bytes", "Memory limit for the container.", func(s *cgroups.Usage) float64 {
		return limit(s.MemoryLimit)
	}),
	gauge("container_threads", "Number of threads running inside the container", func(s *cgroups.Usage) float64 {
		return float64(s.Tasks)
	}),
	gauge(
		"container_threads_max",
		"Maximum number of threads allowed inside the container, infinity if value is zero",
		func(s *cgroups.Usage) float64 {
			return limit(s.TaskLimit)
		},
	),
	counter("container_fs_reads_bytes_total", "Cumulative count of bytes read", func(s *cgroups.Usage) float64 {
		return float64(s.BytesRead)
	}),
	counter("container_fs_writes_bytes_total", "Cumulative count of bytes written", func(s *cgroups.Usage) float64 {
		return float64(s.BytesWritten)
	}),
	counter("container_fs_reads_total", "Cumulative count of reads completed", func(s *cgroups.Usage) float64 {
		return float64(s.ReadOperations)
	}),
	counter("container_fs_writes_total", "Cumulative count of writes completed", func(s *cgroups.Usage) float64 {
		return float64(s.WriteOperations)
	}),
}

// limit is zero where there is none.
func limit(n uint64) float64 {
	if n >= cgroups.Unlimited {
		return 0
	}
	return float64(n)
}

var (
	usedCPU = family{
		"container_cpu_usage_seconds_total",
		"Cumulative cpu time consumed in seconds.",
		prometheus.CounterValue,
		[]string{"container", "cpu", "id", "image", "name", "namespace", "pod"},
	}
	started = family{
		"container_start_time_seconds", "Start time of the container since unix epoch in seconds.", prometheus.GaugeValue,
		groupLabels,
	}
	lastSeen = family{
		"container_last_seen", "Last time a container was seen by the exporter", prometheus.GaugeValue, groupLabels,
	}
	layer = family{
		"container_fs_usage_bytes",
		"Number of bytes that are consumed by the container on this filesystem.",
		prometheus.GaugeValue,
		[]string{"container", "device", "id", "image", "name", "namespace", "pod"},
	}
	cadvisorError = family{
		"container_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise",
		prometheus.GaugeValue, nil,
	}
	machineCores  = family{"machine_cpu_cores", "Number of logical CPU cores.", prometheus.GaugeValue, nil}
	machineMemory = family{
		"machine_memory_bytes", "Amount of memory installed on the machine.", prometheus.GaugeValue, nil,
	}
	usageOfNode = columns[5].family
	setOfNode   = columns[6].family
)

// cadvisor is /metrics/cadvisor.
func (p *Pages) cadvisor(ctx context.Context, out *sink) {
	failed := 0.0
	fail := func(err error) {
		klog.FromContext(ctx).Error(err, "Could not measure what containers use")
		failed = 1
	}
	running, pods, err := p.look(ctx)
	if err != nil {
		fail(err)
	}
	for _, list := range [][]group{pods, running} {
		for _, g := range list {
			if g.stats != nil {
				out.group(g)
			}
		}
	}
	if err := p.networks(out, running); err != nil {
		fail(err)
	}
	if err := p.layers(ctx, out, running); err != nil {
		fail(err)
	}
	if err := p.machine(out); err != nil {
		fail(err)
	}
	out.add(cadvisorError, failed, time.Time{})
}

func (s *sink) group(g group) {
	labels := labelText(groupLabels, g.Container, g.Cgroup, g.Image, g.ID, g.Namespace, g.Pod)
	s.add(usedCPU, seconds(g.stats.CPU), g.at, g.Container, "total", g.Cgroup, g.Image, g.ID, g.Namespace, g.Pod)
	for _, c := range columns {
		s.addRow(c.family, c.read(g.stats), g.at, labels)
	}
	s.addRow(started, unix(g.StartedAt), time.Time{}, labels)
	s.addRow(lastSeen, float64(g.at.Unix()), g.at, labels)
}

func (p *Pages) layers(ctx context.Context, out *sink, running []group) error {
	layers, err := p.cfg.Layers(ctx)
	if err != nil {
		return err
	}
	for _, g := range running {
		if used, ok := layers[g.ID]; ok {
			out.add(layer, float64(used), g.at, g.Container, "", g.Cgroup, g.Image, g.ID, g.Namespace, g.Pod)
		}
	}
	return nil
}

// machine is the root of all cgroups.
func (p *Pages) machine(out *sink) error {
	m, err := p.cfg.Machine()
	if err != nil {
		return err
	}
	now := time.Now()
	out.add(machineCores, float64(m.Cores), time.Time{})
	out.add(machineMemory, float64(m.MemoryCapacity), time.Time{})
	out.add(usedCPU, m.CPU.Seconds(), now, "", "total", "/", "", "", "", "")
	out.add(usageOfNode, float64(m.Memory), now, "", "/", "", "", "", "")
	out.add(setOfNode, float64(m.Memory), now, "", "/", "", "", "", "")
	return nil
}

// traffic are the columns of a network interface.
var traffic = []struct {
	family
	read func(l procfs.NetDevLine) uint64
}{
	{onInterface("receive_bytes", "bytes received"), func(l procfs.NetDevLine) uint64 { return l.RxBytes }},
	{onInterface("receive_packets", "packets received"), func(l procfs.NetDevLine) uint64 { return l.RxPackets }},
	{
		onInterface("receive_packets_dropped", "packets dropped while receiving"),
		func(l procfs.NetDevLine) uint64 { return l.RxDropped },
	},
	{
		onInterface("receive_errors", "errors encountered while receiving"),
		func(l procfs.NetDevLine) uint64 { return l.RxErrors },
	},
	{onInterface("transmit_bytes", "bytes transmitted"), func(l procfs.NetDevLine) uint64 { return l.TxBytes }},
	{onInterface("transmit_packets", "packets transmitted"), func(l procfs.NetDevLine) uint64 { return l.TxPackets }},
	{
		onInterface("transmit_packets_dropped", "packets dropped while transmitting"),
		func(l procfs.NetDevLine) uint64 { return l.TxDropped },
	},
	{
		onInterface("transmit_errors", "errors encountered while transmitting"),
		func(l procfs.NetDevLine) uint64 { return l.TxErrors },
	},
}

// interfaceLabels are those of a network interface.
var interfaceLabels = []string{"container", "id", "image", "interface", "name", "namespace", "pod"}

func onInterface(what, help string) family {
	return family{
		"container_network_" + what + "_total", "Cumulative count of " + help, prometheus.CounterValue, interfaceLabels,
	}
}

// networks reads the interfaces of the node, and of each pod that has a network of its own, at its sandbox. Pods name
// theirs as they like: one that cannot be read takes none of the others along.
func (p *Pages) networks(out *sink, running []group) error {
	proc, err := procfs.NewFS(p.cfg.Proc)
	if err != nil {
		return fmt.Errorf("open %s: %w", p.cfg.Proc, err)
	}
	own, err := proc.NetDev()
	if err != nil {
		return fmt.Errorf("read the node's network interfaces: %w", err)
	}
	out.network(own, group{}, "/")
	var errs []error
	for _, g := range running {
		if g.Container != "" {
			continue
		}
		lines, err := p.ofSandbox(proc, g)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.network(lines, g, g.Cgroup)
	}
	return errors.Join(errs...)
}

// ofSandbox reads the interfaces of a pod; none if it has the node's network, or ended.
func (p *Pages) ofSandbox(proc procfs.FS, g group) (procfs.NetDev, error) {
	if g.HostNetwork {
		return nil, nil
	}
	pids, err := p.cfg.Processes(g.Cgroup)
	if err != nil || len(pids) == 0 {
		return nil, err
	}
	process, err := proc.Proc(pids[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at the process of pod %s/%s: %w", g.Namespace, g.Pod, err)
	}
	lines, err := process.NetDev()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the network interfaces of pod %s/%s: %w", g.Namespace, g.Pod, err)
	}
	return lines, nil
}

func (s *sink) network(lines procfs.NetDev, g group, id string) {
	for name, line := range lines {
		if name == "lo" {
			continue
		}
		labels := labelText(interfaceLabels, "", id, g.Image, name, g.ID, g.Namespace, g.Pod)
		for _, c := range traffic {
			s.addRow(c.family, float64(c.read(line)), g.at, labels)
		}
	}
}
