package csi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// TestShare: mounts below the folder are shared afterwards, whatever it was before; what was mounted stays, and a second time changes
// nothing.
func TestShare(t *testing.T) {
	needs.Root(t, "needs root, to mount")
	for name, before := range map[string]func(t *testing.T, dir string){
		"a folder that is not there": func(*testing.T, string) {},
		"a folder of a private mount": func(t *testing.T, dir string) {
			mount(t, filepath.Dir(dir), "", 0)
			mount(t, filepath.Dir(dir), "", unix.MS_PRIVATE)
		},
		"a private mount": func(t *testing.T, dir string) {
			mount(t, dir, "tmpfs", 0)
			mount(t, dir, "", unix.MS_PRIVATE)
		},
		"a shared mount": func(t *testing.T, dir string) {
			mount(t, dir, "tmpfs", 0)
			mount(t, dir, "", unix.MS_SHARED)
		},
		"something below it": func(t *testing.T, dir string) {
			below := filepath.Join(dir, "pods", "volume")
			mount(t, below, "tmpfs", 0)
			if err := os.WriteFile(filepath.Join(below, "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "kubelet")
			t.Cleanup(func() { unmountAll(t, filepath.Dir(dir)) })
			before(t, dir)
			_, err := os.Stat(filepath.Join(dir, "pods/volume/file"))
			had := err == nil
			if err := Share(dir); err != nil {
				t.Fatal(err)
			}
			first := mountsBelow(t, dir)
			if err := Share(dir); err != nil {
				t.Fatal(err)
			}
			if second := mountsBelow(t, dir); len(second) != len(first) {
				t.Errorf("the second time there are %d mounts, the first time there were %d", len(second), len(first))
			}
			if m, err := mountOf(dir); err != nil || !isShared(m) {
				t.Errorf("it is on %+v, %v, want a shared mount", m, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "pods/volume/file")); had && err != nil {
				t.Errorf("what was mounted below is not seen any more: %v", err)
			}
		})
	}
}

// mount mounts a new tmpfs at the folder, which it makes, or the folder on itself; or it sets the mount's propagation.
func mount(t *testing.T, dir, kind string, propagation uintptr) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	flags := propagation
	if kind == "" && flags == 0 {
		flags = unix.MS_BIND
	}
	if err := unix.Mount(dir, dir, kind, flags, ""); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
}

func mountsBelow(t *testing.T, dir string) []*mountinfo.Info {
	t.Helper()
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func unmountAll(t *testing.T, dir string) {
	list := mountsBelow(t, dir)
	for i := len(list) - 1; i >= 0; i-- {
		if err := unix.Unmount(list[i].Mountpoint, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount what the test mounted: %v", err)
		}
	}
}
