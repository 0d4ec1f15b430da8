package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// setUpEmptyDir makes the directory once; what containers did to it later stays.
func (m *Manager) setUpEmptyDir(pod *corev1.Pod, volume *corev1.Volume) error {
	dir := m.volumeDir(pod.UID, "empty-dir", volume.Name)
	group := fsGroup(pod)
	switch medium := volume.EmptyDir.Medium; {
	case medium == corev1.StorageMediumDefault:
		return makeDir(dir, group)
	case medium == corev1.StorageMediumMemory:
		return mountTmpfs(dir, m.memorySize(pod, volume.EmptyDir), group, asOnDisk)
	case strings.HasPrefix(string(medium), string(corev1.StorageMediumHugePages)):
		return mountHugePages(dir, pod, volume.EmptyDir, group)
	default:
		return fmt.Errorf("unknown storage medium %q", medium)
	}
}

// memorySize is how many bytes an emptyDir in memory may hold: the smallest of its own limit, the pod's memory limit
// and what the node has for pods. 0 means no bound.
func (m *Manager) memorySize(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource) int64 {
	allocatable := m.cfg.Objects.NodeAllocatable()
	size := allocatable.Memory().Value()
	if limit, bounded := podfacts.Limit(pod, corev1.ResourceMemory); bounded && (size == 0 || limit.Value() < size) {
		size = limit.Value()
	}
	if source.SizeLimit != nil && source.SizeLimit.Value() > 0 && (size == 0 || source.SizeLimit.Value() < size) {
		size = source.SizeLimit.Value()
	}
	return size
}

// makeDir makes a directory that everybody may use, under its name only when it is complete.
func makeDir(dir string, group *int64) error {
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	half := filepath.Join(parent, "..new-"+filepath.Base(dir))
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("remove half-made volume directory: %w", err)
	}
	if err := os.Mkdir(half, 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	mode := uint32(0o777)
	if group != nil {
		if err := os.Chown(half, -1, int(*group)); err != nil {
			return fmt.Errorf("give volume directory to its group: %w", err)
		}
		mode |= unix.S_ISGID
	}
	if err := unix.Chmod(half, mode); err != nil {
		return fmt.Errorf("open volume directory to its users: %w", err)
	}
	if err := os.Rename(half, dir); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	return nil
}

// What programs may do in a file system of the pod's: the same as in a directory on the disk; or, where only the node
// writes, nothing that only programs of the pod's would have a use for.
const (
	asOnDisk   = 0
	onlyToRead = unix.MS_NOSUID | unix.MS_NODEV
)

// mountTmpfs mounts a tmpfs of at most size bytes (0: the kernel's default) on dir unless there is one.
func mountTmpfs(dir string, size int64, group *int64, flags uintptr) error {
	options := groupOptions(group)
	if size > 0 {
		options = append(options, "size="+strconv.FormatInt(size, 10))
	}
	return mountFS("tmpfs", unix.TMPFS_MAGIC, dir, options, flags)
}

// mountHugePages mounts a hugetlbfs whose pages have the size of the medium, or, when the medium names none, of the
// only huge page size that the pod's containers ask for.
func mountHugePages(dir string, pod *corev1.Pod, source *corev1.EmptyDirVolumeSource, group *int64) error {
	size, named := strings.CutPrefix(string(source.Medium), string(corev1.StorageMediumHugePagesPrefix))
	if !named {
		sizes := map[string]bool{}
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				for name := range containers[i].Resources.Requests {
					if s, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
						sizes[s] = true
						size = s
					}
				}
			}
		}
		if len(sizes) != 1 {
			return fmt.Errorf("medium %s needs requests of exactly one huge page size, got %d", source.Medium, len(sizes))
		}
	}
	// The kernel reads 2M where a quantity says 2Mi.
	options := append(groupOptions(group), "pagesize="+strings.TrimSuffix(size, "i"))
	return mountFS("hugetlbfs", unix.HUGETLBFS_MAGIC, dir, options, asOnDisk)
}

// groupOptions open a file system to everybody as /tmp is: with files that only their owners remove.
func groupOptions(group *int64) []string {
	if group == nil {
		return []string{"mode=01777"}
	}
	return []string{"mode=03777", "gid=" + strconv.FormatInt(*group, 10)}
}

// mountFS mounts a file system of its own on dir unless dir is one already.
func mountFS(kind string, magic int64, dir string, options []string, flags uintptr) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	mounted, err := isMount(dir)
	if err != nil {
		return err
	}
	if mounted {
		var stat unix.Statfs_t
		if err := unix.Statfs(dir, &stat); err != nil {
			return fmt.Errorf("look at mount %s: %w", dir, err)
		}
		if int64(stat.Type) == magic { //nolint:unconvert // Some machines have other types there.
			return nil
		}
		return errors.New("volume directory is a mount of another kind")
	}
	if err := unix.Mount(kind, dir, kind, flags, strings.Join(options, ",")); err != nil {
		return fmt.Errorf("mount %s on %s: %w", kind, dir, err)
	}
	return nil
}

// fsGroup is the group that owns the pod's volumes, nil when the pod asks for none.
func fsGroup(pod *corev1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
