package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/agent/volumes/removal"
)

// bindSubPath mounts the file or directory subPath of volume on target. What is mounted is what was opened inside
// volume, so a container that changes links meanwhile can't move it. A mount that is there already is replaced when it
// shows something else.
func bindSubPath(volume, subPath, target string) error {
	if err := checkSubPath(subPath); err != nil {
		return err
	}
	fd, err := openSubPath(volume, subPath)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("look at subPath %q: %w", subPath, err)
	}
	if done, err := prepareTarget(target, &stat); done || err != nil {
		return err
	}
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind subPath %q to %s: %w", subPath, target, err)
	}
	return nil
}

func checkSubPath(subPath string) error {
	if strings.HasPrefix(subPath, "/") {
		return fmt.Errorf("subPath %q must be a relative path", subPath)
	}
	if slices.Contains(strings.Split(subPath, "/"), "..") {
		return fmt.Errorf("subPath %q must not contain '..'", subPath)
	}
	return nil
}

// openSubPath opens subPath inside volume, links included as long as they stay inside, and makes a directory where
// nothing is.
func openSubPath(volume, subPath string) (int, error) {
	root, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return -1, fmt.Errorf("open volume: %w", err)
	}
	rootFD, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open volume %s: %w", root, err)
	}
	defer closeFD(rootFD)
	resolved, err := filepath.EvalSymlinks(filepath.Join(root, subPath))
	if errors.Is(err, os.ErrNotExist) {
		return makeSubPath(rootFD, subPath)
	}
	if err != nil {
		return -1, fmt.Errorf("resolve subPath %q: %w", subPath, err)
	}
	inside, ok := strings.CutPrefix(resolved+"/", strings.TrimSuffix(root, "/")+"/")
	if !ok {
		return -1, fmt.Errorf("subPath %q leads out of the volume", subPath)
	}
	// Links are resolved already; one that appears now is somebody's trick, and the kernel refuses it.
	fd, err := openBeneath(rootFD, inside, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return -1, fmt.Errorf("open subPath %q: %w", subPath, err)
	}
	return fd, nil
}

// makeSubPath makes the missing directories of subPath with the volume's own mode and opens the last one.
func makeSubPath(rootFD int, subPath string) (int, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(rootFD, &stat); err != nil {
		return -1, fmt.Errorf("look at volume: %w", err)
	}
	parts := strings.Split(filepath.Clean(subPath), "/")
	dir, done, err := deepestBeneath(rootFD, parts)
	if err != nil {
		return -1, fmt.Errorf("make subPath %q: %w", subPath, err)
	}
	for _, part := range parts[done:] {
		next, err := makeAt(dir, part, stat.Mode&0o7777)
		closeFD(dir)
		if err != nil {
			return -1, fmt.Errorf("make subPath %q: %w", subPath, err)
		}
		dir = next
	}
	return dir, nil
}

// deepestBeneath opens the longest beginning of parts that exists inside the volume; done is how many parts that is.
func deepestBeneath(rootFD int, parts []string) (fd, done int, err error) {
	for done = len(parts); done >= 0; done-- {
		fd, err = openBeneath(rootFD, strings.Join(parts[:done], "/"), 0)
		if !errors.Is(err, unix.ENOENT) {
			return fd, done, err
		}
	}
	return -1, 0, err
}

func makeAt(dir int, name string, mode uint32) (int, error) {
	made := true
	if err := unix.Mkdirat(dir, name, mode); errors.Is(err, unix.EEXIST) {
		made = false
	} else if err != nil {
		return -1, err
	}
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil || !made {
		return fd, err
	}
	// mkdir obeys this process' umask, which is not the volume's business.
	if err := unix.Fchmod(fd, mode); err != nil {
		closeFD(fd)
		return -1, err
	}
	return fd, nil
}

// openBeneath opens path, which may be "" for root itself, and never leaves root.
func openBeneath(root int, path string, resolve uint64) (int, error) {
	if path = strings.Trim(path, "/"); path == "" {
		return unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0)
	}
	return unix.Openat2(root, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve,
	})
}

// prepareTarget makes target an empty place to mount what stat describes; done is true when exactly that is mounted
// there.
func prepareTarget(target string, stat *unix.Stat_t) (done bool, err error) {
	var old unix.Stat_t
	if err := unix.Lstat(target, &old); err == nil {
		mounted, err := isMount(target)
		if err != nil {
			return false, err
		}
		if mounted && old.Dev == stat.Dev && old.Ino == stat.Ino {
			return true, nil
		}
		if err := unmountBelow(target); err != nil {
			return false, err
		}
		if err := removal.Tree(target); err != nil {
			return false, err
		}
	} else if !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("look at %s: %w", target, err)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return false, fmt.Errorf("make place for subPath: %w", err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(target, 0o750)
	} else {
		var file *os.File
		if file, err = os.OpenFile(target, os.O_CREATE|os.O_EXCL, 0o640); err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return false, fmt.Errorf("make place for subPath: %w", err)
	}
	return false, nil
}
