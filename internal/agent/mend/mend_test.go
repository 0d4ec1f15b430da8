package mend

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/utils/clock"
)

// part has the files of a test.
type part []File

func (p part) Mend() ([]string, error) { return Files(p...) }

// What is gone comes back, what is changed is put aside, what is as it was is left alone, and what cannot be put back
// is told of and keeps nothing else.
func TestFilesComeBack(t *testing.T) {
	dir := t.TempDir()
	var files part
	for _, name := range []string{"changed", "folder/gone", "in the way", "whole"} {
		files = append(files, File{Path: filepath.Join(dir, name), Mode: 0o600, Content: []byte(name)})
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(dir, "changed"), []byte("ch"), 0o600))
	must(os.Mkdir(filepath.Join(dir, "in the way"), 0o700))
	must(os.WriteFile(filepath.Join(dir, "whole"), []byte("whole"), 0o600))
	before, err := os.Stat(filepath.Join(dir, "whole"))
	must(err)

	var told []string
	var failed error
	synctest.Test(t, func(t *testing.T) {
		looks := make(chan error) // each look tells of the file that is in the way
		ctx := t.Context()
		go Run(ctx, clock.RealClock{}, func(path string, err error) {
			if err == nil {
				told = append(told, filepath.Base(path))
				return
			}
			select {
			case looks <- err:
			case <-ctx.Done():
			}
		}, files)
		for range 2 {
			failed = <-looks
		}
	})
	if !slices.Equal(told, []string{"changed", "gone"}) || failed == nil {
		t.Errorf("it told of %v, and of %v", told, failed)
	}
	for name, want := range map[string]string{"changed": "changed", "changed.broken": "ch", "folder/gone": "folder/gone"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
	after, err := os.Stat(filepath.Join(dir, "whole"))
	must(err)
	if !os.SameFile(before, after) {
		t.Error("a file that was whole was written again")
	}
	if errors.Is(failed, os.ErrNotExist) {
		t.Errorf("what is in the way is told of as %v", failed)
	}
}
