package cri

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cgroups"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// OOM scores by quality of service.
const (
	guaranteedOOMScore = -997
	besteffortOOMScore = 1000
	nodeCritical       = 2_000_001_000 // the priority of the class system-node-critical
)

// resources turns the container's requests and limits into cgroup values.
func (r *Runtime) resources(pod *corev1.Pod, c *corev1.Container) *runtimeapi.LinuxContainerResources {
	cpu := podfacts.ContainerLimit(pod, c, corev1.ResourceCPU)
	request, limit := c.Resources.Requests.Cpu().MilliValue(), cpu.MilliValue()
	if _, ok := c.Resources.Requests[corev1.ResourceCPU]; !ok {
		request = limit
	}
	out := &runtimeapi.LinuxContainerResources{
		CpuShares:   cgroups.CPUShares(request),
		OomScoreAdj: max(r.oomScore(pod, c), r.cfg.MinOOMScore),

		HugepageLimits: hugePages(c, r.cfg.Cgroups.PageSizes()),
	}
	if limit > 0 {
		out.CpuPeriod, out.CpuQuota = cgroups.QuotaPeriod, cgroups.CPUQuota(limit)
	}
	if memory := podfacts.ContainerLimit(pod, c, corev1.ResourceMemory); !memory.IsZero() {
		out.MemoryLimitInBytes = memory.Value()
		if r.cfg.Cgroups.Unified() {
			out.Unified = map[string]string{"memory.oom.group": "1"}
		}
	}
	// Containers use no swap, as in a kubelet: a limit of memory would mean little otherwise.
	if r.cfg.Cgroups.LimitsSwap(pod) {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified["memory.swap.max"] = "0"
	}
	return out
}

// oomScore says how readily the kernel kills the container when the node runs out of memory: the smaller its share of
// what it asked for, the sooner.
func (r *Runtime) oomScore(pod *corev1.Pod, c *corev1.Container) int64 {
	if pod.Spec.Priority != nil && *pod.Spec.Priority >= nodeCritical {
		return guaranteedOOMScore
	}
	switch podfacts.QOS(pod) {
	case corev1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case corev1.PodQOSBestEffort:
		return besteffortOOMScore
	}
	if r.cfg.MemoryCapacity <= 0 {
		return besteffortOOMScore - 1
	}
	asked := c.Resources.Requests.Memory().Value()
	if podfacts.IsSidecar(c) {
		// The others depend on it: it should not be killed before any of them.
		asked = max(asked, leastMemory(pod.Spec.Containers))
	}
	asked += unclaimedMemory(pod)
	score := besteffortOOMScore - besteffortOOMScore*asked/r.cfg.MemoryCapacity
	return min(max(score, besteffortOOMScore+guaranteedOOMScore), besteffortOOMScore-1)
}

// leastMemory is the smallest request for memory of the containers.
func leastMemory(containers []corev1.Container) int64 {
	least := int64(-1)
	for i := range containers {
		if asked := containers[i].Resources.Requests.Memory().Value(); least < 0 || asked < least {
			least = asked
		}
	}
	return max(least, 0)
}

// unclaimedMemory is each container's share of what the pod as a whole asks for beyond what its containers do.
func unclaimedMemory(pod *corev1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	left := pod.Spec.Resources.Requests.Memory().Value()
	if left == 0 {
		return 0
	}
	count := int64(0)
	claim := func(c *corev1.Container) {
		left -= c.Resources.Requests.Memory().Value()
		count++
	}
	for i := range pod.Spec.Containers {
		claim(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podfacts.IsSidecar(c) {
			claim(c)
		}
	}
	return max(left, 0) / max(count, 1)
}

const capSysResource = 24

// LowestOOMScore is the lowest oom_score_adj that this process may give to another: any if it has CAP_SYS_RESOURCE,
// else its own.
func LowestOOMScore() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read this process's capabilities: %w", err)
	}
	if hasCapability(string(status), capSysResource) {
		return -1000, nil
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, fmt.Errorf("read this process's OOM score: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(own)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read this process's OOM score: %w", err)
	}
	return n, nil
}

// hasCapability reads the effective capabilities in the text of /proc/PID/status.
func hasCapability(status string, bit uint) bool {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err == nil && set&(1<<bit) != 0
		}
	}
	return false
}

// hugePages are a container's limits, of the sizes that the machine can limit.
func hugePages(c *corev1.Container, sizes []string) (out []*runtimeapi.HugepageLimit) {
	for _, l := range cgroups.PageLimits(c.Resources.Limits, sizes) {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: l.Pagesize, Limit: l.Limit})
	}
	return out
}

// WidenPod raises the limits of the pod's cgroup to those of its specification, and lowers none: its containers may
// still have more.
func (r *Runtime) WidenPod(pod *corev1.Pod) error { return r.cfg.Cgroups.Widen(pod) }

// NarrowPod gives the pod's cgroup the requests and limits of its specification.
func (r *Runtime) NarrowPod(pod *corev1.Pod) error { return r.cfg.Cgroups.Ensure(pod) }

// ResizeContainer gives a container that runs the CPU and memory of its specification. It takes no memory away that is
// in use: the kernel would end the container.
func (r *Runtime) ResizeContainer(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string) error {
	resources := r.resources(pod, c)
	if limit := resources.MemoryLimitInBytes; limit > 0 {
		stats, err := r.service.ContainerStats(ctx, id)
		if err != nil {
			return fmt.Errorf("ask the runtime what container %s uses: %w", c.Name, err)
		}
		if used := int64(stats.GetMemory().GetWorkingSetBytes().GetValue()); used >= limit {
			return fmt.Errorf("attempting to set memory limit (%d) of container %s below current usage (%d)", limit,
				c.Name, used)
		}
	}
	if resources.CpuQuota == 0 {
		resources.CpuPeriod, resources.CpuQuota = cgroups.QuotaPeriod, -1
	}
	err := r.service.UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{Linux: resources})
	if err != nil {
		return fmt.Errorf("resize container %s: %w", c.Name, err)
	}
	return nil
}
