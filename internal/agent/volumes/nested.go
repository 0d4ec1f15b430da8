package volumes

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mountPoints are the paths in the volume on which containers of the pod mount others. The runtime cannot make them:
// the volume is read-only to it.
func mountPoints(pod *corev1.Pod, volume string) []string {
	var out []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out = append(out, mountPointsOf(list[i].VolumeMounts, volume)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func mountPointsOf(mounts []corev1.VolumeMount, volume string) []string {
	at := make([]string, len(mounts))
	for i, m := range mounts {
		at[i] = path.Join("/", m.MountPath)
	}
	var out []string
	for i, m := range mounts {
		if m.Name != volume || m.SubPath != "" || m.SubPathExpr != "" {
			continue
		}
		for _, inner := range at {
			below, inside := strings.CutPrefix(inner, strings.TrimSuffix(at[i], "/")+"/")
			// What lies on another mount in the volume is for that one's owner.
			covered := slices.ContainsFunc(at, func(middle string) bool {
				return strings.HasPrefix(middle, at[i]+"/") && strings.HasPrefix(inner, middle+"/")
			})
			if inside && below != "" && !covered {
				out = append(out, below)
			}
		}
	}
	return out
}

// topOf is the first part of a path in a volume.
func topOf(path string) string {
	name, _, _ := strings.Cut(path, "/")
	return name
}

// makeMountPoints makes the directories that others are mounted on, but for those among the volume's own files: these
// are there, and the files of one moment cannot have directories that last.
func makeMountPoints(dir string, points []string, content files) error {
	own := map[string]bool{}
	for name := range content {
		own[topOf(name)] = true
	}
	for _, point := range points {
		if own[topOf(point)] || strings.HasPrefix(point, "..") {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, point), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make the mount point %s in the volume: %w", point, err)
		}
	}
	return nil
}
