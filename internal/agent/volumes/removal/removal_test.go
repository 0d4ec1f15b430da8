package removal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// A tree that is deeper than files may be open, with names longer than a path, many files, and names that are ours.
func TestTreeOfAnyShape(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := os.MkdirAll(filepath.Join(root, "..removed-1", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * removeBatch {
		if err := os.WriteFile(filepath.Join(root, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name := strings.Repeat("n", 200)
	const depth = 400
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	for range depth {
		err = errors.Join(err, unix.Mkdirat(fd, "side", 0), unix.Mkdirat(fd, name, 0o700), unix.Symlinkat("/", fd, "link"))
		next, openErr := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		closeFD(fd)
		if fd, err = next, errors.Join(err, openErr); err != nil {
			t.Fatal(err)
		}
	}
	closeFD(fd)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 64, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err = Tree(root)
	if restore := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil || restore != nil {
		t.Fatal(err, restore)
	}
	if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	if err := Tree(root); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}

func TestTreeStopsAtAMount(t *testing.T) {
	needs.Root(t, "mounting needs root")
	base := t.TempDir()
	root, other := filepath.Join(base, "root"), filepath.Join(base, "other")
	if err := errors.Join(os.MkdirAll(root+"/a/b/mount", 0o755), os.Mkdir(other, 0o755), os.WriteFile(other+"/precious", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other, root+"/a/b/mount", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error { _ = unix.Unmount(path, unix.MNT_DETACH); return nil })
	})
	if err := Tree(root); err == nil {
		t.Error("a tree with a mount in it was removed")
	}
	if _, err := os.Stat(other + "/precious"); err != nil {
		t.Errorf("what is mounted lost a file: %v", err)
	}
}
