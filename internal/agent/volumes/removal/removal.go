// Package removal removes the trees of files that pods leave, however deep they are and whatever is in their way.
package removal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// removeBatch is how many entries of a folder are read at once.
const removeBatch = 1000

// Tree removes path and all below it, but stops with an error at a mount, even a bind mount of the same file
// system.
//
// Pods nest folders as deep as they like. So nothing follows them down: what is in a folder of the tree is moved up to
// its top, where it is next. Two folders are open at a time, whatever the tree is like.
func Tree(path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer closeFD(parent)
	name := filepath.Base(path)
	if removed, err := removeEntry(parent, name); removed || err != nil {
		return wrapRemove(path, err)
	}
	top, err := openToRemove(parent, name)
	if err != nil {
		return wrapRemove(path, err)
	}
	defer func() { _ = top.Close() }()
	t := tree{top: int(top.Fd())}
	if err := eachEntry(top, t.remove); err != nil {
		return wrapRemove(path, err)
	}
	_, err = removeEntry(parent, name)
	return wrapRemove(path, err)
}

func wrapRemove(path string, err error) error {
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// tree is one that is being removed.
type tree struct {
	top   int
	moved int // how many folders were moved up
}

// remove removes an entry of the top, and moves what is in it up if that is not empty.
func (t *tree) remove(name string) error {
	if removed, err := removeEntry(t.top, name); removed || err != nil {
		return err
	}
	dir, err := openToRemove(t.top, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = dir.Close() }()
	err = eachEntry(dir, func(child string) error {
		if removed, err := removeEntry(int(dir.Fd()), child); removed || err != nil {
			return err
		}
		return t.moveUp(int(dir.Fd()), child)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = removeEntry(t.top, name)
	return err
}

func (t *tree) moveUp(from int, name string) error {
	for {
		t.moved++
		err := unix.Renameat2(from, name, t.top, "..removed-"+strconv.Itoa(t.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// removeEntry removes a file or an empty folder; false for a folder with something in it.
func removeEntry(dir int, name string) (removed bool, err error) {
	err = unix.Unlinkat(dir, name, 0)
	if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
		return false, nil
	}
	return false, fmt.Errorf("%s: %w", name, err)
}

func openToRemove(parent int, name string) (*os.File, error) {
	fd, err := unix.Openat2(parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// eachEntry does something with each entry of a folder, also of those that come to it meanwhile, until it is empty.
func eachEntry(dir *os.File, do func(name string) error) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(removeBatch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := do(name); err != nil {
				return err
			}
		}
	}
}

// closeFD closes a descriptor that was only read; such a close has no error that could matter.
func closeFD(fd int) { _ = unix.Close(fd) }
