// Package wholefile replaces files in one step.
package wholefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Unfinished begins the name of a file beside path that a process left when it
// was killed while it wrote.
func Unfinished(path string) string { return "." + filepath.Base(path) + "-" }

// Write puts what fill writes at path: a reader, or a crash, finds the old
// content or the new, whole and on the disk, and so is its name. After an error the old one is there, unless it was the
// name that could not be written to the disk.
func Write(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), Unfinished(path))
	if err != nil {
		return err
	}
	if err = errors.Join(fill(f), f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncFolder(filepath.Dir(path))
}

// Create puts what fill writes at a path where nothing may be yet, not even a link:
// what appears there is whole and on the disk, and so is its name. After an error
// nothing is there.
func Create(path string, mode fs.FileMode, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), Unfinished(path))
	if err != nil {
		return err
	}
	if err = errors.Join(fill(f), f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = moveNew(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	err = SyncFolder(filepath.Dir(path))
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// moveNew renames a file unless something has the new name.
func moveNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// NFS, CephFS, 9p and many file systems in user space know no flags. A second name is refused as well where
	// there is one.
	err = os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) && same(from, to) { // NFS may have asked twice
		if err = os.Remove(from); err != nil {
			return errors.Join(err, os.Remove(to))
		}
		return nil
	}
	if errors.Is(err, fs.ErrExist) {
		return err
	}
	// Some of them have no second names. Then nothing refuses a name that somebody takes at this very moment.
	if _, err = os.Lstat(to); err == nil {
		return &fs.PathError{Op: "create", Path: to, Err: fs.ErrExist}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(from, to)
}

func same(one, other string) bool {
	a, err := os.Lstat(one)
	b, otherErr := os.Lstat(other)
	return err == nil && otherErr == nil && os.SameFile(a, b)
}

// SyncFolder has the names in a folder be on the disk. A file system that cannot write those by themselves, as CIFS,
// writes them with the files.
func SyncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = f.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// Bytes is a fill for Write.
func Bytes(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}
