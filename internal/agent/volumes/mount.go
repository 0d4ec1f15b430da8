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

// isMount tells whether something is mounted on the directory or file path, bind mounts included.
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

// removeTree removes path and all below it, but stops with an error at a mount, even a bind mount of the same file system.
func removeTree(path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer closeFD(parent)
	if err := removeAt(parent, filepath.Base(path), path); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// removeAt removes the entry name of the directory parent; path is for messages only.
func removeAt(parent int, name, path string) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	for _, child := range names {
		if err := removeAt(fd, child, filepath.Join(path, child)); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// closeFD closes a descriptor that was only read; such a close has no error that could matter.
func closeFD(fd int) { _ = unix.Close(fd) }
