// Package wholefile replaces files in one step.
package wholefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// Bytes is a fill for Write.
func Bytes(content []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}
