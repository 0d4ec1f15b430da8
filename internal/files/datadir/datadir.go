// Package datadir makes the folder in which a part of Everynode keeps its data,
// so that a start which fails leaves nothing half made.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const hint = "; choose another with --data-dir, or run as a user who may write there"

// Make makes the folder, and those above it, where they are missing, and sees
// whether it can be written. forget removes what was made again, as far as it
// is empty.
func Make(dir string, mode fs.FileMode) (forget func(), err error) {
	if dir == "" {
		return nil, errors.New("no data dir is given; name one with --data-dir")
	}
	missing := missingFolders(dir)
	forget = func() {
		for _, d := range missing {
			if os.Remove(d) != nil {
				return
			}
		}
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		forget()
		return nil, fmt.Errorf("the data dir cannot be made: %w%s", err, hint)
	}
	probe, err := os.CreateTemp(dir, ".write-probe-")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		forget()
		return nil, fmt.Errorf("the data dir %s cannot be written: %w%s", dir, cause(err), hint)
	}
	return forget, nil
}

// missingFolders lists the folders of a path that do not exist, the lowest first.
func missingFolders(dir string) (missing []string) {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, fs.ErrNotExist) {
			return missing
		}
		missing = append(missing, d)
	}
}

// cause drops the name of the probe, which no user knows, from an error.
func cause(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
