package volumes

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	before, err := Measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := write("a/b/file", 1<<20)
	write("small", 1)
	// A second name and a link take no blocks of their own; a file of holes neither.
	if err := os.Link(file, filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(write("holes", 0), 1<<30); err != nil {
		t.Fatal(err)
	}
	after, err := Measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.Bytes - before.Bytes; grown < 1<<20 || grown > 2<<20 {
		t.Errorf("a file of 1 MiB and a few small ones take %d bytes", grown)
	}
	// Two folders, file, small, link, holes.
	if grown := after.Inodes - before.Inodes; grown != 6 {
		t.Errorf("%d files and folders more, want 6", grown)
	}
	if gone, err := Measure(filepath.Join(dir, "not", "there")); err != nil || gone != (Space{}) {
		t.Errorf("a folder that is not there: %+v, %v", gone, err)
	}
}
