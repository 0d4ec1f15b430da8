package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cri/labels"
)

// ContainerStats is what one container uses, as far as the runtime knows.
type ContainerStats struct {
	PodUID    types.UID
	Container string
	// ID is the runtime's.
	ID string
	// Time is when CPU was read, CPU the processor time used since the start of the container.
	Time time.Time
	CPU  time.Duration
	// Memory is the working set, Layer what the container wrote to its own file system, both in bytes.
	Memory, Layer int64
	LayerInodes   int64
}

// Stats asks the runtime what the running containers use: those of one pod, or of all with an empty UID.
func (r *Runtime) Stats(ctx context.Context, uid types.UID) ([]ContainerStats, error) {
	filter := &runtimeapi.ContainerStatsFilter{}
	if uid != "" {
		filter.LabelSelector = podFilter(uid)
	}
	list, err := r.service.ListContainerStats(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("ask the runtime what containers use: %w", err)
	}
	out := make([]ContainerStats, 0, len(list))
	for _, s := range list {
		has := s.GetAttributes().GetLabels()
		if has[labels.PodUID] == "" {
			continue // not a pod's
		}
		out = append(out, ContainerStats{
			PodUID: types.UID(has[labels.PodUID]), Container: has[labels.ContainerName], ID: s.GetAttributes().GetId(),
			Time:        time.Unix(0, s.GetCpu().GetTimestamp()),
			CPU:         time.Duration(s.GetCpu().GetUsageCoreNanoSeconds().GetValue()),
			Memory:      int64(s.GetMemory().GetWorkingSetBytes().GetValue()),
			Layer:       int64(s.GetWritableLayer().GetUsedBytes().GetValue()),
			LayerInodes: int64(s.GetWritableLayer().GetInodesUsed().GetValue()),
		})
	}
	return out, nil
}

// OwnFiles is the folder of the files that the agent makes for the pod's containers, which these can write.
func (r *Runtime) OwnFiles(uid types.UID) string { return r.podDir(uid) }

// PodCgroup is the path of the pod's cgroup in each hierarchy.
func (r *Runtime) PodCgroup(pod *corev1.Pod) string { return r.cfg.Cgroups.Of(pod) }

// Processes counts the processes and threads of the pod; 0 where that is not known.
func (r *Runtime) Processes(pod *corev1.Pod) int64 { return r.cfg.Cgroups.Processes(pod) }

// ImageFS is a folder on the file system that images are on.
func ImageFS(ctx context.Context, service internalapi.ImageManagerService) (string, error) {
	resp, err := service.ImageFsInfo(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the runtime where images are: %w", err)
	}
	for _, fs := range resp.GetImageFilesystems() {
		if dir := fs.GetFsId().GetMountpoint(); dir != "" {
			return dir, nil
		}
	}
	return "", errors.New("the runtime does not say where images are")
}

// UsedImages names the images, by whatever name, that containers dead or alive were made from, and the one of
// sandboxes.
func (r *Runtime) UsedImages(ctx context.Context) (map[string]bool, error) {
	list, err := r.service.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the containers that use images: %w", err)
	}
	used := make(map[string]bool, len(list))
	for _, c := range list {
		used[c.ImageRef] = true
		used[c.GetImage().GetImage()] = true
	}
	resp, err := r.service.Status(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for the image of sandboxes: %w", err)
	}
	if name := sandboxImage(resp.GetInfo()["config"]); name != "" {
		used[name] = true
	}
	return used, nil
}

// sandboxImage reads the image of sandboxes out of containerd's configuration, as it shows it; empty for other
// runtimes, which pin theirs.
func sandboxImage(config string) string {
	var c struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(config), &c) != nil {
		return ""
	}
	return c.SandboxImage
}
