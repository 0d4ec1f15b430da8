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
// content or the new, whole and on the disk. After an error the old one is there.
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
	return nil
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
		err = unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder has the names in a folder be on the disk.
func SyncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Bytes is a fill for Write.
func Bytes(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}
