package cri

import (
	"context"
	"fmt"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri/labels"
)

// Group is a running container or a ready sandbox with its cgroup.
type Group struct {
	PodUID         types.UID
	Namespace, Pod string
	// Container is the container's name; empty for a sandbox, in whose network the containers are.
	Container string
	// ID is the runtime's, Image the image's name.
	ID, Image string
	// Cgroup is its path in each hierarchy; PodCgroup that of the pod.
	Cgroup, PodCgroup string
	StartedAt         time.Time
	// HostNetwork says of a sandbox that its network is the node's.
	HostNetwork bool
}

// name is what the runtime calls itself; it is asked once.
func (r *Runtime) name(ctx context.Context) (string, error) {
	r.mu.Lock()
	known := r.called
	r.mu.Unlock()
	if known != "" {
		return known, nil
	}
	version, err := r.service.Version(ctx, "v1")
	if err != nil {
		return "", fmt.Errorf("ask the container runtime for its name, which cgroups of containers go by: %w", err)
	}
	r.mu.Lock()
	r.called = version.GetRuntimeName()
	r.mu.Unlock()
	return version.GetRuntimeName(), nil
}

// Groups lists what runs. CgroupOf says where a pod's cgroup is, empty for a pod that nobody knows, which is left out.
func (r *Runtime) Groups(ctx context.Context, cgroupOf func(uid types.UID) string) ([]Group, error) {
	sandboxes, err := r.service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes to measure: %w", err)
	}
	containers, err := r.service.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		return nil, fmt.Errorf("list the containers to measure: %w", err)
	}
	runtime, err := r.name(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Group, 0, len(sandboxes)+len(containers))
	group := func(has map[string]string, id string) (Group, bool) {
		g := Group{PodUID: types.UID(has[labels.PodUID]), Namespace: has[labels.PodNamespace], Pod: has[labels.PodName],
			Container: has[labels.ContainerName], ID: id}
		g.PodCgroup = cgroupOf(g.PodUID)
		if g.PodCgroup == "" {
			return g, false
		}
		g.Cgroup = path.Join(g.PodCgroup, cgroups.ContainerName(r.cfg.Cgroups.Driver(), runtime, id))
		return g, true
	}
	for _, s := range sandboxes {
		known, err := r.readSandbox(ctx, s)
		if g, ours := group(s.Labels, s.Id); ours && err == nil && known != nil {
			g.StartedAt, g.HostNetwork = known.CreatedAt, known.HostNetwork
			out = append(out, g)
		}
	}
	for _, c := range containers {
		known, err := r.readContainer(ctx, c)
		if g, ours := group(c.Labels, c.Id); ours && err == nil && known != nil {
			g.StartedAt, g.Image = known.StartedAt, known.Image
			out = append(out, g)
		}
	}
	return out, nil
}
