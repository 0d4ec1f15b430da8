// Package mend puts files back that a node wrote and that somebody removed or changed while it runs.
package mend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/files/wholefile"
)

const (
	// lookEvery is how often files are compared with what was written.
	lookEvery = 30 * time.Second
	// asideSuffix is for what was found in the place of a file.
	asideSuffix = ".broken"
)

// File is a file as it was written last.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content []byte
}

// Mend puts the file back if it is not as it was written, and reports whether it did. What is there instead is put
// aside.
func (f File) Mend() (mended bool, err error) {
	now, err := os.ReadFile(f.Path)
	if err == nil && bytes.Equal(now, f.Content) {
		return false, nil
	}
	switch {
	case err == nil:
		err = os.Rename(f.Path, f.Path+asideSuffix)
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(f.Path), 0o700)
	}
	if err == nil {
		err = wholefile.Write(f.Path, f.Mode, wholefile.Bytes(f.Content))
	}
	if err != nil {
		return false, fmt.Errorf("put %s back, which somebody removed or changed: %w", f.Path, err)
	}
	return true, nil
}

// Files mends all of them, and returns the paths of those that were not as they were written.
func Files(all ...File) (mended []string, err error) {
	var errs []error
	for _, f := range all {
		is, err := f.Mend()
		if is {
			mended = append(mended, f.Path)
		}
		errs = append(errs, err)
	}
	return mended, errors.Join(errs...)
}

// Part is a part of the node that has files. It mends them, and returns the paths of those that were not as they were
// written. It writes none of them at the same time.
type Part interface {
	Mend() (mended []string, err error)
}

// Run has all parts mend their files, until ctx ends, and tells of each file that was put back, and of errors.
func Run(ctx context.Context, clk clock.Clock, tell func(path string, err error), parts ...Part) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-clk.After(lookEvery):
		}
		for _, p := range parts {
			mended, err := p.Mend()
			for _, path := range mended {
				tell(path, nil)
			}
			if err != nil {
				tell("", err)
			}
		}
	}
}
