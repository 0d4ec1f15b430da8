// Package plainfile opens files below folders in which others can put things: never
// through a symbolic link, never anything but a regular file, and without waiting for
// somebody at the other end.
package plainfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotPlain means that there is something else than a regular file: a link, a named
// pipe, a device.
var ErrNotPlain = errors.New("not a regular file")

// Open opens a regular file for reading. The root is trusted, links in it included; what
// is between it and the file is not.
func Open(root, path string) (*os.File, error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer func() { _ = unix.Close(top) }()
	return openAt(top, root, path)
}

// OpenIn opens a regular file in a folder for reading.
func OpenIn(folder *os.Root, name string) (*os.File, error) {
	top, err := folder.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = top.Close() }()
	return openAt(int(top.Fd()), "/", "/"+name)
}

func openAt(top int, root, path string) (*os.File, error) {
	fd, err := beneath(top, root, path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // it was only looked at
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotPlain}
	}
	// This very file, whatever has its name by now.
	again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(again), path), nil
}

// Folder opens a folder, so that what is done in it happens in that one. The caller
// closes it.
func Folder(root, path string) (*os.Root, error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	defer func() { _ = unix.Close(top) }()
	fd, err := beneath(top, root, path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	folder, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return folder, nil
}

// beneath opens a path without following links below top, which is the folder root.
func beneath(top int, root, path string, flags uint64) (int, error) {
	below, err := filepath.Rel(root, path)
	if err != nil {
		return -1, fmt.Errorf("%s is not below %s: %w", path, root, err)
	}
	fd, err := unix.Openat2(top, below, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ELOOP) {
		err = ErrNotPlain
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
