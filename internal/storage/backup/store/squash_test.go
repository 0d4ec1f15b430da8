package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// nobody is who root is on the disk of a machine that squashes it.
const nobody = 65534

// squashed does what touches files as nobody, as an NFS server has root do by default.
func squashed(t *testing.T, do func() error) error {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := errors.Join(unix.Setfsgid(nobody), unix.Setfsuid(nobody))
	defer func() {
		err := errors.Join(unix.Setfsuid(0), unix.Setfsgid(0))
		if err != nil {
			t.Fatal(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	return do()
}

// A folder of another machine on which root is nobody takes backups, if it is nobody's or everybody's. What nobody may
// not remove there holds up none.
func TestRootIsNobody(t *testing.T) {
	needs.Root(t, "only root can be somebody else")
	for name, test := range map[string]struct {
		owner int
		mode  os.FileMode
		fails bool
	}{
		"its own":         {nobody, 0o700, false},
		"everybody's":     {0, 0o777 | os.ModeSticky, false},
		"somebody else's": {0, 0o700, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			half := filepath.Join(dir, ".everynode-1.backup-7")
			long := time.Now().Add(-2 * unfinishedFor)
			err := errors.Join(os.WriteFile(half, nil, 0o600), os.Chtimes(half, long, long),
				os.Chmod(filepath.Dir(dir), 0o755),
				os.Chown(dir, test.owner, -1), os.Chmod(dir, test.mode))
			if err != nil {
				t.Fatal(err)
			}
			put := func() error {
				_, err := folder(dir).Put(t.Context(), "everynode-2.backup", func(w io.Writer) error {
					_, err := io.WriteString(w, "content")
					return err
				})
				return err
			}
			err = squashed(t, put)
			if test.fails {
				if !errors.Is(err, os.ErrPermission) {
					t.Errorf("it says %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			err = squashed(t, put)
			if !errors.Is(err, os.ErrExist) {
				t.Errorf("a second one of the name: %v", err)
			}
			err = squashed(t, func() error {
				names, err := folder(dir).Names(t.Context())
				if len(names) == 0 {
					t.Errorf("there is %v", names)
				}
				return errors.Join(err, folder(dir).Remove(t.Context(), "everynode-2.backup"))
			})
			if _, left := os.Lstat(filepath.Join(dir, "everynode-2.backup")); err != nil || !errors.Is(left, os.ErrNotExist) {
				t.Errorf("it is not removed: %v, %v", err, left)
			}
		})
	}
}
