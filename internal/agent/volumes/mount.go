package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
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

// closeFD closes a descriptor that was only read; such a close has no error that could matter.
func closeFD(fd int) { _ = unix.Close(fd) }
