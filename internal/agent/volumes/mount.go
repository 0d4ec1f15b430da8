package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// isMount reports whether something is mounted on the directory or file path, bind mounts included.
func isMount(path string) (bool, error) {
	mounted, err := mountinfo.Mounted(path)
	if err != nil {
		return false, fmt.Errorf("look for a mount on %s: %w", path, err)
	}
	return mounted, nil
}

// unmountBelow unmounts everything that is mounted on dir or below it, the innermost first.
func unmountBelow(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for mounts below %s: %w", dir, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	if err != nil {
		return fmt.Errorf("look for mounts below %s: %w", dir, err)
	}
	// Of two mounts on one place the later covers the earlier, so order among equals is the reverse of the list's.
	for i, j := 0, len(mounts)-1; i < j; i, j = i+1, j-1 {
		mounts[i], mounts[j] = mounts[j], mounts[i]
	}
	sort.SliceStable(mounts, func(i, j int) bool { return len(mounts[i].Mountpoint) > len(mounts[j].Mountpoint) })
	var errs []error
	for _, mount := range mounts {
		err := unix.Unmount(mount.Mountpoint, unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mount.Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}

// patience is how long a file system or a driver is waited for before its pod is told that it does not answer.
const patience = 2 * time.Minute

// foreign is what asks file systems that may be of another machine, whose answer may never come.
type foreign struct {
	hostPath func(*corev1.HostPathVolumeSource) error
	local    func(pod *corev1.Pod, dir string, readOnly bool) error
	bind     func(volume, subPath, target string) error
	unmount  func(dir string) error
}

func newForeign() foreign { return foreign{setUpHostPath, setUpLocal, bindSubPath, unmountBelow} }

// ask has f done for a pod, and waits for it no longer than it must.
func (m *Manager) ask(ctx context.Context, uid types.UID, what string, f func() error) error {
	return m.calls.Do(ctx, string(uid), what, func(context.Context) error { return f() })
}

// setUpDrivers has a storage driver mount the volume. Whether that is done is asked of the volume's file system.
func (m *Manager) setUpDrivers(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) error {
	what := fmt.Sprintf("driver %s of volume %s", volume.CSI.Driver, volume.Name)
	return m.calls.Do(ctx, string(pod.UID), what, func(ctx context.Context) error {
		return m.cfg.Drivers.SetUp(ctx, pod, volume)
	})
}

// closeFD closes a descriptor that was only read; such a close has no error that could matter.
func closeFD(fd int) { _ = unix.Close(fd) }
