package volumes

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/env"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Mount is one mount of a container.
type Mount struct {
	// Name is the pod volume's.
	Name string
	// ContainerPath is absolute.
	ContainerPath string
	// HostPath is the file or directory of this node to mount there.
	HostPath string
	// Image is the image to mount there instead, from ImagePath in it.
	Image     Image
	ImagePath string
	// ReadOnly is true when the container or the volume asked for it and for content that the node writes (config maps and
	// the like).
	ReadOnly bool
	// RecursiveReadOnly says whether what is mounted below is to be for reading, too; empty when the container doesn't
	// say.
	RecursiveReadOnly corev1.RecursiveReadOnlyMode
	// Propagation is None when the container doesn't say.
	Propagation corev1.MountPropagationMode
}

// Mounts makes ready the mounts of container, in its order; SetUp of the pod must have succeeded. A subPath gets a
// directory when nothing is there yet.
func (m *Manager) Mounts(ctx context.Context, pod *corev1.Pod, container *corev1.Container) ([]Mount, error) {
	if err := checkUID(pod.UID); err != nil {
		return nil, err
	}
	state := m.state(pod.UID)
	state.mu.Lock()
	defer state.mu.Unlock()
	mounts := make([]Mount, 0, len(container.VolumeMounts))
	for i := range container.VolumeMounts {
		mount, err := m.mount(ctx, state, pod, container, i)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

func (m *Manager) mount(
	ctx context.Context, state *podState, pod *corev1.Pod, container *corev1.Container, index int,
) (Mount, error) {
	from := &container.VolumeMounts[index]
	volume := podfacts.Volume(&pod.Spec, from.Name)
	if volume == nil {
		return Mount{}, fmt.Errorf("cannot find volume %q to mount into container %q", from.Name, container.Name)
	}
	mount := Mount{
		Name: from.Name, ContainerPath: from.MountPath, HostPath: m.path(pod, volume),
		ReadOnly:    from.ReadOnly || onlyRead(volume),
		Propagation: corev1.MountPropagationNone,
	}
	if isClaimed(volume) {
		found := state.claimed[volume.Name]
		if found == nil {
			return Mount{}, fmt.Errorf("volume %q of a claim is not ready yet", volume.Name)
		}
		mount.HostPath, mount.ReadOnly = found.Path, mount.ReadOnly || found.ReadOnly
	}
	if !path.IsAbs(mount.ContainerPath) {
		mount.ContainerPath = path.Join("/", mount.ContainerPath)
	}
	if from.RecursiveReadOnly != nil {
		mount.RecursiveReadOnly = *from.RecursiveReadOnly
	}
	if from.MountPropagation != nil {
		mount.Propagation = *from.MountPropagation
	}
	subPath, err := m.subPath(pod, container, from)
	if err != nil {
		return Mount{}, err
	}
	if volume.Image != nil {
		mount.HostPath, mount.Image, mount.ImagePath, mount.ReadOnly = "", state.images[volume.Name], subPath, true
		return mount, nil
	}
	if subPath == "" {
		return mount, nil
	}
	target := filepath.Join(m.podDir(pod.UID), "volume-subpaths", from.Name, container.Name, strconv.Itoa(index))
	err = m.ask(ctx, pod.UID, "path "+filepath.Join(mount.HostPath, subPath), func() error {
		return m.foreign.bind(mount.HostPath, subPath, target)
	})
	if err != nil {
		return Mount{}, fmt.Errorf(
			"failed to prepare subPath for volumeMount %q of container %q: %w", from.Name, container.Name, err,
		)
	}
	mount.HostPath = target
	return mount, nil
}

// onlyRead says whether a volume is for reading, whatever its mounts say.
func onlyRead(volume *corev1.Volume) bool {
	return isContent(volume) || volume.CSI != nil && volume.CSI.ReadOnly != nil && *volume.CSI.ReadOnly
}

// path is where the volume is on this node.
func (m *Manager) path(pod *corev1.Pod, volume *corev1.Volume) string {
	if volume.HostPath != nil {
		return volume.HostPath.Path
	}
	if volume.CSI != nil && m.cfg.Drivers != nil {
		return m.cfg.Drivers.Path(pod.UID, volume.Name)
	}
	if kind := contentKind(volume); kind != "" {
		return m.volumeDir(pod.UID, kind, volume.Name)
	}
	return m.volumeDir(pod.UID, "empty-dir", volume.Name)
}

// subPath is the path inside the volume that the container wants, "" for the whole volume.
func (m *Manager) subPath(pod *corev1.Pod, container *corev1.Container, from *corev1.VolumeMount) (string, error) {
	if from.SubPathExpr == "" {
		return from.SubPath, nil
	}
	if m.cfg.Env == nil {
		return "", fmt.Errorf("volume %q: subPathExpr is not supported by this node", from.Name)
	}
	vars, err := m.cfg.Env(pod, container)
	if err != nil {
		return "", fmt.Errorf("expand subPathExpr %q: %w", from.SubPathExpr, err)
	}
	lookup, missing := env.Lookup(vars), ""
	expanded, err := env.Expand(from.SubPathExpr, func(name string) (string, bool) {
		value, ok := lookup(name)
		if !ok {
			missing = name
		}
		return value, ok
	})
	if err != nil {
		return "", fmt.Errorf("expand subPathExpr: %w", err)
	}
	if missing != "" {
		return "", fmt.Errorf("expand subPathExpr %q: missing value for %q", from.SubPathExpr, missing)
	}
	if expanded == "" {
		return "", fmt.Errorf("expand subPathExpr %q: the result is empty", from.SubPathExpr)
	}
	return expanded, nil
}
