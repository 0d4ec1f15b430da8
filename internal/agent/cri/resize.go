package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// WidenPod raises the limits of the pod's cgroup to those of its specification, and lowers none: its containers may still have more.
func (r *Runtime) WidenPod(pod *corev1.Pod) error { return r.cgroups.widen(pod) }

// NarrowPod gives the pod's cgroup the requests and limits of its specification.
func (r *Runtime) NarrowPod(pod *corev1.Pod) error { return r.cgroups.ensurePod(pod) }

// ResizeContainer gives a container that runs the CPU and memory of its specification. It takes no memory away that is in use: the
// kernel would end the container.
func (r *Runtime) ResizeContainer(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string) error {
	resources := r.resources(pod, c)
	if limit := resources.MemoryLimitInBytes; limit > 0 {
		stats, err := r.service.ContainerStats(ctx, id)
		if err != nil {
			return fmt.Errorf("ask the runtime what container %s uses: %w", c.Name, err)
		}
		if used := int64(stats.GetMemory().GetWorkingSetBytes().GetValue()); used >= limit {
			return fmt.Errorf("attempting to set memory limit (%d) of container %s below current usage (%d)", limit, c.Name, used)
		}
	}
	if resources.CpuQuota == 0 {
		resources.CpuPeriod, resources.CpuQuota = quotaPeriod, -1
	}
	err := r.service.UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{Linux: resources})
	if err != nil {
		return fmt.Errorf("resize container %s: %w", c.Name, err)
	}
	return nil
}

// widen raises the limits of CPU and memory of the pod's cgroup where they are lower than the pod's.
func (c cgroups) widen(pod *corev1.Pod) error {
	sum, dir := podTotals(pod), func(controller string) string {
		if c.unified() {
			return filepath.Join(c.mount, c.podPath(pod))
		}
		return filepath.Join(c.mount, controller, c.podPath(pod))
	}
	cpuFile, memoryFile, cpu, memory := "cpu.max", "memory.max", "max "+strconv.Itoa(quotaPeriod), "max"
	if !c.unified() {
		cpuFile, memoryFile, cpu, memory = "cpu.cfs_quota_us", "memory.limit_in_bytes", "-1", "-1"
	}
	if sum.cpuLimit > 0 {
		cpu = strconv.FormatInt(cpuQuota(sum.cpuLimit), 10)
		if c.unified() {
			cpu += " " + strconv.Itoa(quotaPeriod)
		}
	}
	if sum.memoryLimit > 0 {
		memory = strconv.FormatInt(sum.memoryLimit, 10)
	}
	for _, f := range [][2]string{{filepath.Join(dir("cpu"), cpuFile), cpu}, {filepath.Join(dir("memory"), memoryFile), memory}} {
		now, err := os.ReadFile(f[0])
		if err != nil {
			return fmt.Errorf("read the limits of pod %s: %w", pod.Name, err)
		}
		if !higher(f[1], string(now)) {
			continue
		}
		if err := os.WriteFile(f[0], []byte(f[1]), 0o644); err != nil {
			return fmt.Errorf("raise the limits of pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// higher says whether the limit is above the present one. What is no positive number is no limit.
func higher(limit, now string) bool {
	number := func(text string) (int64, bool) {
		first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		return n, err == nil && n > 0
	}
	is, bounded := number(now)
	wants, stays := number(limit)
	return bounded && (!stays || wants > is)
}
