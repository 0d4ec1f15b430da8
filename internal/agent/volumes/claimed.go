package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/objects/volume"
)

// Claims gives the claims that pods use, and their volumes. What it returns is shared and not changed.
type Claims interface {
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// Node is the name of the node, and its labels.
	Node() (name string, labels map[string]string)
}

// claimed is where a claim's volume is on this node. It is kept beside the pod's volumes: it never changes while the
// pod is there, and must be known after a restart without a control plane.
type claimed struct {
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Volume is the PersistentVolume's name, for who looks at the file.
	Volume string `json:"volume"`
}

// setUpClaimed makes the volume of a claim ready.
func (m *Manager) setUpClaimed(ctx context.Context, state *podState, v *corev1.Volume) error {
	if _, known := state.claimed[v.Name]; known {
		return nil
	}
	found, err := m.rememberedClaim(state.pod, v.Name)
	if err != nil {
		return err
	}
	if found == nil {
		if found, err = m.findClaimed(ctx, state.pod, v); err != nil {
			return err
		}
		if err := m.rememberClaim(state.pod, v.Name, found); err != nil {
			return err
		}
	}
	if state.claimed == nil {
		state.claimed = map[string]*claimed{}
	}
	state.claimed[v.Name] = found
	return nil
}

// findClaimed asks the API for the claim and its volume, and has that ready.
func (m *Manager) findClaimed(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*claimed, error) {
	claim, err := m.cfg.Claims.Claim(ctx, pod.Namespace, volume.ClaimName(pod.Name, v))
	if err != nil {
		return nil, err
	}
	if err := usable(pod, v, claim); err != nil {
		return nil, err
	}
	pv, err := m.cfg.Claims.Volume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		return nil, fmt.Errorf("PersistentVolume %q is not bound to claim %q", pv.Name, claim.Name)
	}
	if name, labels := m.cfg.Claims.Node(); !volume.Reaches(pv, name, labels) {
		return nil, fmt.Errorf("PersistentVolume %q cannot be used on this node: its node affinity does not match", pv.Name)
	}
	if err := checkMode(pod, v.Name, volume.Mode(pv.Spec.VolumeMode)); err != nil {
		return nil, err
	}
	out := &claimed{Volume: pv.Name, ReadOnly: v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly}
	switch {
	case (pv.Spec.HostPath != nil || pv.Spec.Local != nil) && len(pv.Spec.MountOptions) > 0:
		// They may be there to keep programs from something.
		return nil, fmt.Errorf(
			"PersistentVolume %q has mountOptions: this node mounts volumes of the kinds hostPath and local without any",
			pv.Name,
		)
	case pv.Spec.HostPath != nil:
		out.Path = pv.Spec.HostPath.Path
		return out, m.ask(ctx, pod.UID, "path "+out.Path, func() error { return m.foreign.hostPath(pv.Spec.HostPath) })
	case pv.Spec.Local != nil:
		out.Path = pv.Spec.Local.Path
		return out, m.ask(ctx, pod.UID, "local volume "+out.Path, func() error {
			return m.foreign.local(pod, out.Path, out.ReadOnly)
		})
	}
	return nil, fmt.Errorf(
		"PersistentVolume %q: this node mounts PersistentVolumes of the kinds hostPath and local; a volume of a storage "+
			"driver can be asked for by the pod itself (csi)",
		pv.Name,
	)
}

// usable refuses a claim that has no volume for the pod.
func usable(pod *corev1.Pod, v *corev1.Volume, claim *corev1.PersistentVolumeClaim) error {
	switch {
	case v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod):
		return fmt.Errorf(
			"PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name,
		)
	case claim.DeletionTimestamp != nil:
		return errors.New("can't start pod because PVC is being deleted")
	case claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return errors.New("PVC is not bound")
	}
	return nil
}

// checkMode refuses devices: this node gives pods file systems.
func checkMode(pod *corev1.Pod, name string, mode corev1.PersistentVolumeMode) error {
	if mode == corev1.PersistentVolumeBlock {
		return fmt.Errorf(
			"volume %s has volumeMode Block: this node gives pods no block devices; use a volume with volumeMode Filesystem",
			name,
		)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, device := range containers[i].VolumeDevices {
				if device.Name == name {
					return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", name)
				}
			}
		}
	}
	return nil
}

// setUpLocal looks at the folder of a local volume, and gives what is in it to the group of the pod's volumes.
func setUpLocal(pod *corev1.Pod, dir string, readOnly bool) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("path %q does not exist", dir)
	case err != nil:
		return fmt.Errorf("look at local volume: %w", err)
	case !info.IsDir():
		return fmt.Errorf("path %q is no directory: this node mounts local volumes that are directories", dir)
	}
	group := fsGroup(pod)
	if group == nil || readOnly || hasGroup(info, *group) && onlyOnMismatch(pod) {
		return nil
	}
	return giveToGroup(dir, int(*group))
}

// onlyOnMismatch says whether what is in a volume need not be looked at if its folder is the group's: there may be
// millions of files.
func onlyOnMismatch(pod *corev1.Pod) bool {
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	return policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch
}

// hasGroup says whether the group owns a folder, works in it, and gets what is made there.
func hasGroup(info fs.FileInfo, group int64) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(owner.Gid) == group && info.Mode()&fs.ModeSetgid != 0 && info.Mode().Perm()&0o070 == 0o070
}

// kept are the bits of a mode beside the permissions that stay when a group gets a file: of a folder in which everybody
// may write it must not become possible to remove others' files.
const kept = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// giveToGroup has the group own, read and write all that is in a folder. Programs may work in it meanwhile and put
// links in the way: nothing outside of the folder is touched.
func giveToGroup(dir string, group int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open local volume: %w", err)
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		if err := root.Lchown(name, -1, group); err != nil {
			return ignoreMissing(err)
		}
		mode := info.Mode()&kept | 0o060
		switch {
		case info.IsDir():
			mode |= 0o010 | fs.ModeSetgid
		case !info.Mode().IsRegular():
			return nil
		}
		return ignoreMissing(root.Chmod(name, mode))
	})
	if err != nil {
		return fmt.Errorf("give local volume to its group: %w", err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (m *Manager) claimFile(pod *corev1.Pod, name string) string {
	return filepath.Join(m.podDir(pod.UID), "claims", name)
}

// rememberedClaim is what an earlier run found; nil if nothing.
func (m *Manager) rememberedClaim(pod *corev1.Pod, name string) (*claimed, error) {
	data, err := os.ReadFile(m.claimFile(pod, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read where the claim's volume is: %w", err)
	}
	out := &claimed{}
	if err := json.Unmarshal(data, out); err != nil || out.Path == "" {
		return nil, fmt.Errorf(
			"file %s, which says where the claim's volume is, cannot be read; remove it: %w",
			m.claimFile(pod, name), errors.Join(err, errEmpty),
		)
	}
	return out, nil
}

var errEmpty = errors.New("it names no path")

func (m *Manager) rememberClaim(pod *corev1.Pod, name string, found *claimed) error {
	data, err := json.Marshal(found)
	if err != nil {
		return fmt.Errorf("write down where the claim's volume is: %w", err)
	}
	file := m.claimFile(pod, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("write down where the claim's volume is: %w", err)
	}
	if err := wholefile.Write(file, 0o600, func(w io.Writer) error { _, err := w.Write(data); return err }); err != nil {
		return fmt.Errorf("write down where the claim's volume is: %w", err)
	}
	return nil
}

// isClaimed says whether a volume is that of a claim.
func isClaimed(v *corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }
