package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestForgetRemovesWhatMakeMade(t *testing.T) {
	base := t.TempDir()
	forget, err := Make(filepath.Join(base, "a", "b", "c"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "a", "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	forget()
	if _, err := os.Stat(filepath.Join(base, "a", "b")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a/b is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(base, "a", "kept")); err != nil {
		t.Errorf("a file of somebody else is gone: %v", err)
	}
}

func TestForgetKeepsAFolderThatWasThere(t *testing.T) {
	base := t.TempDir()
	forget, err := Make(base, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	forget()
	if entries, err := os.ReadDir(base); err != nil || len(entries) > 0 {
		t.Errorf("the folder holds %v, %v, want an empty one", entries, err)
	}
}

func TestUnusableFoldersAreReported(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below")} {
		if _, err := Make(dir, 0o700); err == nil || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("Make(%q) = %v, want an error that says what to do", dir, err)
		}
	}
}
