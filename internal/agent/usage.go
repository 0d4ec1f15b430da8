package agent

import (
	"context"
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// gauge measures what pods use.
type gauge struct {
	runtime *cri.Runtime
	volumes *volumes.Manager
}

// pods measures pods, on disk too if that is wanted. It goes on after errors and returns them joined; a pod that could not be
// measured is left out.
func (g gauge) pods(ctx context.Context, list []*corev1.Pod, disk bool) ([]eviction.Usage, error) {
	stats, err := g.runtime.Stats(ctx, "")
	if err != nil {
		return nil, err
	}
	byPod := make(map[types.UID][]cri.ContainerStats, len(list))
	for _, s := range stats {
		byPod[s.PodUID] = append(byPod[s.PodUID], s)
	}
	var errs []error
	out := make([]eviction.Usage, 0, len(list))
	for _, pod := range list {
		u, err := g.pod(pod, byPod[pod.UID], disk)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, u)
	}
	return out, errors.Join(errs...)
}

func (g gauge) pod(pod *corev1.Pod, stats []cri.ContainerStats, disk bool) (eviction.Usage, error) {
	u := eviction.Usage{Pod: pod, Static: staticpods.IsUID(pod.UID), Processes: g.runtime.Processes(pod),
		Containers: make(map[string]eviction.ContainerUsage, len(stats)), Volumes: map[string]int64{}}
	for _, s := range stats {
		u.Memory += s.Memory
		u.Disk += s.Layer
		u.Inodes += s.LayerInodes
		u.Containers[s.Container] = eviction.ContainerUsage{Memory: s.Memory, Disk: s.Layer}
	}
	if !disk {
		return u, nil
	}
	dirs, err := g.volumes.MeasureEmptyDirs(pod)
	if err != nil {
		return u, err
	}
	for name, space := range dirs {
		u.Volumes[name] = space.Bytes
		u.Disk += space.Bytes
		u.Inodes += space.Inodes
	}
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		logs, err := volumes.Measure(filepath.Join(g.runtime.LogDirectory(pod), name))
		if err != nil {
			return u, err
		}
		u.Disk += logs.Bytes
		u.Inodes += logs.Inodes
		c := u.Containers[name]
		c.Disk += logs.Bytes
		u.Containers[name] = c
	}
	return u, nil
}
