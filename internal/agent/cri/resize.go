package cri

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cgroups"
)

// WidenPod raises the limits of the pod's cgroup to those of its specification, and lowers none: its containers may still have more.
func (r *Runtime) WidenPod(pod *corev1.Pod) error { return r.cfg.Cgroups.Widen(pod) }

// NarrowPod gives the pod's cgroup the requests and limits of its specification.
func (r *Runtime) NarrowPod(pod *corev1.Pod) error { return r.cfg.Cgroups.Ensure(pod) }

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
		resources.CpuPeriod, resources.CpuQuota = cgroups.QuotaPeriod, -1
	}
	err := r.service.UpdateContainerResources(ctx, id, &runtimeapi.ContainerResources{Linux: resources})
	if err != nil {
		return fmt.Errorf("resize container %s: %w", c.Name, err)
	}
	return nil
}
