// Package measure finds out what the pods of a node use: when somebody asks, and when the node runs short.
package measure

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/diskuse"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/staticpods"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Gauge measures what pods use.
type Gauge struct {
	Runtime Runtime
	Volumes interface {
		EmptyDirs(pod *corev1.Pod) map[string]string
	}
	Meter *diskuse.Meter
}

// Runtime is what the container runtime tells of pods; cri.Runtime is one.
type Runtime interface {
	Stats(ctx context.Context, uid types.UID) ([]cri.ContainerStats, error)
	Processes(pod *corev1.Pod) int64
	LogDirectory(pod *corev1.Pod) string
	OwnFiles(uid types.UID) string
}

// Pods measures pods, on disk too for as long as is wanted; what is not measured then goes on the next time. It goes on
// after errors and returns them joined: what could not be measured of a pod counts as nothing, and no pod hides the
// others.
func (g Gauge) Pods(ctx context.Context, list []*corev1.Pod, disk time.Duration) ([]eviction.Usage, error) {
	stats, err := g.Runtime.Stats(ctx, "")
	if err != nil && disk == 0 {
		return nil, err // There is nothing to choose by.
	}
	errs := []error{err}
	byPod := make(map[types.UID][]cri.ContainerStats, len(list))
	for _, s := range stats {
		byPod[s.PodUID] = append(byPod[s.PodUID], s)
	}
	out := make([]eviction.Usage, 0, len(list))
	for _, pod := range list {
		u := g.pod(pod, byPod[pod.UID])
		if disk > 0 {
			errs = append(errs, g.disk(&u, disk/time.Duration(len(list))))
		}
		out = append(out, u)
	}
	return out, errors.Join(errs...)
}

func (g Gauge) pod(pod *corev1.Pod, stats []cri.ContainerStats) eviction.Usage {
	u := eviction.Usage{Pod: pod, Static: staticpods.IsUID(pod.UID), Processes: g.Runtime.Processes(pod),
		Containers: make(map[string]eviction.ContainerUsage, len(stats)), Volumes: map[string]int64{}}
	for _, s := range stats {
		u.Memory += s.Memory
		u.Disk += s.Layer
		u.Inodes += s.LayerInodes
		u.Containers[s.Container] = eviction.ContainerUsage{Memory: s.Memory, Disk: s.Layer}
	}
	return u
}

// disk adds what the pod has in its volumes, its logs, and the files that the agent mounts into its containers.
func (g Gauge) disk(u *eviction.Usage, within time.Duration) error {
	dirs := g.Volumes.EmptyDirs(u.Pod)
	each := within / time.Duration(len(dirs)+len(u.Pod.Spec.Containers)+len(u.Pod.Spec.InitContainers)+1)
	var errs []error
	measure := func(what, dir string) int64 {
		space, err := g.Meter.Measure(dir, each)
		if errors.Is(err, diskuse.ErrTooDeep) {
			u.Unmeasured = what
		} else {
			errs = append(errs, err)
		}
		u.Disk += space.Bytes
		u.Inodes += space.Inodes
		return space.Bytes
	}
	for name, dir := range dirs {
		u.Volumes[name] = measure(fmt.Sprintf("EmptyDir volume %q", name), dir)
	}
	logs := g.Runtime.LogDirectory(u.Pod)
	for _, name := range lasting(u.Pod) {
		c := u.Containers[name]
		c.Disk += measure("the logs of container "+name, filepath.Join(logs, name))
		u.Containers[name] = c
	}
	measure("the pod's own files", g.Runtime.OwnFiles(u.Pod.UID))
	return errors.Join(errs...)
}

// lasting names the containers that write as long as the pod runs: all but those that only begin it.
func lasting(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podfacts.IsSidecar(c) {
			names = append(names, c.Name)
		}
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	return names
}
