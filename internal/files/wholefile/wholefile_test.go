package wholefile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, 0o640, Bytes([]byte("old"))); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	half := func(w io.Writer) error {
		_, err := w.Write([]byte("ne"))
		return errors.Join(err, broken)
	}
	if err := Write(path, 0o600, half); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	content, err := os.ReadFile(path)
	if err != nil || string(content) != "old" {
		t.Errorf("after half a write there is %q, %v", content, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("after half a write the mode is %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("beside it there is %v, %v", entries, err)
	}
	if err := Write(path, 0o600, Bytes([]byte("new"))); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "new" {
		t.Errorf("after a write there is %q, %v", content, err)
	}
}

func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	broken := errors.New("broken")
	if err := Create(path, 0o600, func(io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("after half a file there is %v, %v", entries, err)
	}
	if err := Create(path, 0o600, Bytes([]byte("first"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "link"} {
		if err := Create(filepath.Join(dir, name), 0o600, Bytes([]byte("second"))); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: %v, want that it is there", name, err)
		}
	}
	content, err := os.ReadFile(path)
	if entries, _ := os.ReadDir(dir); err != nil || string(content) != "first" || len(entries) != 2 {
		t.Errorf("there is %q in %v, %v", content, entries, err)
	}
}
