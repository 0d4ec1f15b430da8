package measure

import (
	"context"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/scrape"
	"github.com/everynode/everynode/internal/node/usage"
)

// diskPatience is how long the disk is measured for one summary; what is not measured then goes on the next time.
const diskPatience = 2 * time.Second

// Full adds to the summary of processor time and memory what else is used.
type Full struct {
	*Summarizer
	Gauge Gauge
	// Uses is what cgroups and networks tell of containers, of pods, and of interfaces by pod UID.
	Uses func(context.Context) (running, groups []scrape.Use, networks map[string][]usage.Interface, err error)
	// Observe is what is free on the node.
	Observe func(context.Context) (eviction.Observations, error)
}

// Summary measures; onlyBrief leaves out all but processor time and memory.
func (f Full) Summary(ctx context.Context, onlyBrief bool) (*usage.Summary, error) {
	out, err := f.Summarizer.Summary(ctx)
	if err != nil || onlyBrief {
		return out, err
	}
	d := details{now: metav1.Now(), pods: map[string]*corev1.Pod{}, disk: map[string]eviction.Usage{}}
	pods := f.Pods()
	for _, pod := range pods {
		d.pods[string(pod.UID)] = pod
	}
	d.running, d.groups, d.networks, err = f.Uses(ctx)
	if err != nil {
		return nil, err
	}
	d.seen, err = f.Observe(ctx)
	if err != nil {
		return nil, err
	}
	measured, err := f.Gauge.Pods(ctx, pods, diskPatience)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not measure all that pods have on the disk", "err", err)
	}
	for _, u := range measured {
		d.disk[string(u.Pod.UID)] = u
	}
	stats, err := f.Stats(ctx, "")
	if err != nil {
		return nil, err
	}
	d.layers = map[string]cri.ContainerStats{}
	for _, s := range stats {
		d.layers[string(s.PodUID)+"/"+s.Container] = s
	}
	d.node(&out.Node)
	for i := range out.Pods {
		d.pod(&out.Pods[i], f.UIDOf)
	}
	return out, nil
}

// details are what a full summary has besides processor time and memory.
type details struct {
	now             metav1.Time
	pods            map[string]*corev1.Pod
	running, groups []scrape.Use
	networks        map[string][]usage.Interface
	seen            eviction.Observations
	disk            map[string]eviction.Usage
	layers          map[string]cri.ContainerStats
}

func (d *details) node(out *usage.Node) {
	out.Network = d.network(d.networks[""])
	out.FS = d.fs(eviction.NodeFSAvailable, eviction.NodeFSInodesFree)
	out.Runtime = &usage.Runtime{ImageFS: d.fs(eviction.ImageFSAvailable, eviction.ImageFSInodesFree)}
	if pids, ok := d.seen[eviction.PIDAvailable]; ok {
		out.Rlimit = &usage.Rlimit{Time: d.now, MaxPID: pids.Capacity, CurProc: pids.Capacity - pids.Available}
	}
	if memory, ok := d.seen[eviction.MemoryAvailable]; ok && out.Memory != nil {
		out.Memory.AvailableBytes = amount64(memory.Available)
	}
}

// fs is a file system of the node.
func (d *details) fs(bytes, inodes eviction.Signal) *usage.FS {
	out := &usage.FS{Time: d.now}
	if o, ok := d.seen[bytes]; ok {
		out.AvailableBytes, out.CapacityBytes = amount64(o.Available), amount64(o.Capacity)
		out.UsedBytes = amount64(o.Capacity - o.Available)
	}
	if o, ok := d.seen[inodes]; ok {
		out.InodesFree, out.Inodes, out.InodesUsed = amount64(o.Available), amount64(o.Capacity),
			amount64(o.Capacity-o.Available)
	}
	return out
}

func amount64(n int64) *uint64 {
	u := uint64(max(n, 0))
	return &u
}

func (d *details) network(list []usage.Interface) *usage.Network {
	if len(list) == 0 {
		return nil
	}
	return &usage.Network{Time: d.now, Interface: list[0], Interfaces: list}
}

// used is a part of the node's file system.
func (d *details) used(bytes int64) *usage.FS {
	out := d.fs(eviction.NodeFSAvailable, eviction.NodeFSInodesFree)
	out.UsedBytes, out.InodesUsed = amount64(bytes), nil
	return out
}

func (d *details) pod(out *usage.Pod, uidOf func(*corev1.Pod) types.UID) {
	pod := d.pods[out.Ref.UID]
	if pod == nil {
		return
	}
	uid := string(uidOf(pod))
	out.StartTime, out.Network = pod.Status.StartTime, d.network(d.networks[uid])
	for _, g := range d.groups {
		if string(g.PodUID) != uid {
			continue
		}
		memory := g.Memory
		memory.Time = metav1.NewTime(g.At)
		out.Memory, out.ProcessStats = &memory, &usage.Processes{Count: g.Processes}
		out.CPU = &usage.CPU{Time: metav1.NewTime(g.At), UsageCoreNanoSeconds: uint64(g.CPU)}
	}
	disk, measured := d.disk[out.Ref.UID]
	if measured {
		out.EphemeralStorage = d.used(disk.Disk)
		for name, bytes := range disk.Volumes {
			out.Volumes = append(out.Volumes, usage.Volume{Name: name, FS: *d.used(bytes)})
		}
	}
	for i := range out.Containers {
		c := &out.Containers[i]
		if c.CPU != nil && out.CPU != nil {
			out.CPU.UsageNanoCores += c.CPU.UsageNanoCores
		}
		layer, known := d.layers[filepath.Join(uid, c.Name)]
		if known {
			c.Rootfs = d.used(layer.Layer)
		}
		if measured && known {
			c.Logs = d.used(disk.Containers[c.Name].Disk - layer.Layer)
		}
		d.container(c, uid)
	}
}

func (d *details) container(c *usage.Container, uid string) {
	for _, g := range d.running {
		if string(g.PodUID) != uid || g.Container != c.Name {
			continue
		}
		started, memory := metav1.NewTime(g.StartedAt), g.Memory
		memory.Time = metav1.NewTime(g.At)
		c.StartTime, c.Memory = &started, &memory
	}
}
