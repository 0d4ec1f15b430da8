package diskuse

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// whole walks to the end.
func whole(dir string) (Space, error) {
	return NewMeter(clock.RealClock{}).Measure(dir, time.Hour)
}

// nested makes a folder with so many folders one in the other, and a file of a block in the innermost.
func nested(t *testing.T, dir string, depth int, name string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	file, err := unix.Openat(fd, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(file, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Close(file), unix.Close(fd)
}

// Paths that are longer than the kernel takes, at once.
func TestLongPaths(t *testing.T) {
	dir := t.TempDir()
	name := strings.Repeat("n", 250)
	nested(t, dir, 100, name)
	space, err := whole(dir)
	if err != nil || space.Inodes != 102 || space.Bytes < 1<<20 {
		t.Errorf("measured %+v, %v; want 102 files and folders", space, err)
	}
}

func TestNestedTooDeep(t *testing.T) {
	dir := t.TempDir()
	nested(t, dir, 500, "d")
	now := time.Unix(1e9, 0)
	m := NewMeter(testingclock.NewFakePassiveClock(now))
	// The walk took a second, so that none begins at once after it.
	m.known[dir] = &folderUse{walk: newWalk(dir), asked: now, spent: time.Second}
	m.known[dir].walk.depth = 400
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	space, err := m.Measure(dir, time.Hour)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrTooDeep) || space.Inodes != 401 {
		t.Errorf("measured %+v, %v; want %d folders, and that they are too deep", space, err, 401)
	}
	if again, err := m.Measure(dir, 0); !errors.Is(err, ErrTooDeep) || again != space {
		t.Errorf("measured %+v, %v the next time", again, err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 5<<20 {
		t.Errorf("it took %d bytes of memory", taken)
	}
}

// A look is short, however many files there are, and each goes on where the last one ended.
func TestManyFilesAreMeasuredBitByBit(t *testing.T) {
	dir := t.TempDir()
	const folders, files = 8, 1000
	for i := range folders {
		sub := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range files {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(j)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := Space{Inodes: 1 + folders + folders*files}
	clk := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	m := NewMeter(clk)
	var last Space
	looks := 0
	for last.Inodes != want.Inodes {
		looks++
		now, err := m.Measure(dir, 0)
		if err != nil || now.Inodes < last.Inodes || now.Inodes > want.Inodes || now.Inodes-last.Inodes > 2*steps || looks > 50 {
			t.Fatalf("look %d finds %+v (%v) after %+v", looks, now, err, last)
		}
		last = now
	}
	if looks < folders*files/(2*steps) {
		t.Errorf("all was measured in %d looks", looks)
	}
	// The next walk begins again; until it is whole, the last one counts.
	if err := os.RemoveAll(filepath.Join(dir, "3")); err != nil {
		t.Fatal(err)
	}
	for range looks + 1 {
		clk.SetTime(clk.Now().Add(time.Second))
		if now, err := m.Measure(dir, 0); err != nil || now.Inodes < want.Inodes-files-1 {
			t.Fatalf("a walk that begins again finds %+v, %v", now, err)
		}
	}
	if now, _ := m.Measure(dir, time.Hour); now.Inodes != want.Inodes-files-1 {
		t.Errorf("after the next whole walk there are %d, want %d", now.Inodes, want.Inodes-files-1)
	}
}

// What moves and goes away while it is counted ends no walk, and leads it nowhere else.
func TestWalkOfWhatChanges(t *testing.T) {
	for what, change := range map[string]func(dir string) error{
		"the innermost folder moves up": func(dir string) error { return os.Rename(dir+"/a/b/c", dir+"/c") },
		"one in the middle moves up":    func(dir string) error { return os.Rename(dir+"/a/b", dir+"/b") },
		"one is another's by name": func(dir string) error {
			return errors.Join(os.Rename(dir+"/a/b", dir+"/b"), os.Mkdir(dir+"/a/b", 0o755))
		},
		"one becomes a link":       func(dir string) error { return errors.Join(os.Rename(dir+"/a", dir+"/z"), os.Symlink("/", dir+"/a")) },
		"all goes away":            func(dir string) error { return os.RemoveAll(dir + "/a") },
		"the root goes away":       os.RemoveAll,
		"the root is another's":    func(dir string) error { return errors.Join(os.Rename(dir, dir+"-old"), os.Mkdir(dir, 0o755)) },
		"nobody may look into one": func(dir string) error { return os.Chmod(dir+"/a", 0) },
	} {
		for stop := range 12 {
			dir := filepath.Join(t.TempDir(), "root")
			if err := os.MkdirAll(dir+"/a/b/c/d", 0o755); err != nil {
				t.Fatal(err)
			}
			for _, sub := range []string{"", "/a", "/a/b", "/a/b/c", "/a/b/c/d"} {
				if err := os.WriteFile(dir+sub+"/file", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, paused := range []bool{false, true} {
				w := newWalk(dir)
				done, err := false, error(nil)
				for i := 0; !done && err == nil && i < 200; i++ {
					if i == stop && !paused {
						if err := change(dir); err != nil {
							t.Fatal(err)
						}
					}
					if paused {
						w.close()
					}
					_, done, err = w.step()
				}
				w.close()
				if !done || err != nil || w.space().Inodes > 12 {
					t.Errorf("%s at step %d: done %v, %v, %+v", what, stop, done, err, w.space())
				}
			}
			_ = os.Chmod(dir+"/a", 0o755)
		}
	}
}

func TestNoFoldersStayOpen(t *testing.T) {
	dir := t.TempDir()
	nested(t, dir, 300, "d")
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	m := NewMeter(testingclock.NewFakePassiveClock(time.Unix(1e9, 0)))
	for range 3 {
		w := newWalk(dir)
		for range 200 {
			if _, _, err := w.step(); err != nil {
				t.Fatal(err)
			}
		}
		if now := open(); now > before+1 {
			t.Errorf("a walk keeps %d folders open", now-before)
		}
		w.close()
		if _, err := m.Measure(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
	if now := open(); now != before {
		t.Errorf("%d folders stay open", now-before)
	}
}

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
	before, err := whole(dir)
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
	after, err := whole(dir)
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
	if gone, err := whole(filepath.Join(dir, "not", "there")); err != nil || gone != (Space{}) {
		t.Errorf("a folder that is not there: %+v, %v", gone, err)
	}
}
