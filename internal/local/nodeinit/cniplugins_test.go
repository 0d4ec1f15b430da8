package nodeinit

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/local/localtest"
)

// A network daemon that replaces a plugin, or adds one, does so on its node alone; and a plugin that is newer on the
// machine is newer on the
// node after its next start.
func TestPluginsAreTheNodesOwn(t *testing.T) {
	if !localtest.OnFreshMachine(t) {
		return
	}
	snapshotter, err := probeSnapshotter(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for how, offer := range map[string]func(from, to, layers string) error{"stacked": stackPlugins, "copied": copyPlugins,
		"either": offerPlugins} {
		if how == "stacked" && snapshotter != "overlayfs" {
			continue
		}
		machine, node, layers := t.TempDir(), t.TempDir(), t.TempDir()
		write := func(path, content string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		reads := func(path, want string) {
			t.Helper()
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%s: %s holds %q (%v), want %q", how, path, got, err, want)
			}
		}
		write(filepath.Join(machine, "bridge"), "the machine's")
		write(filepath.Join(machine, "portmap"), "old")
		if err := offer(machine, node, layers); err != nil {
			t.Fatal(err)
		}
		reads(filepath.Join(node, "bridge"), "the machine's")
		if info, err := os.Stat(filepath.Join(node, "bridge")); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", how, info, err)
		}
		write(filepath.Join(node, "bridge"), "the daemon's")
		write(filepath.Join(node, "flannel"), "the daemon's")
		reads(filepath.Join(machine, "bridge"), "the machine's")
		if _, err := os.Stat(filepath.Join(machine, "flannel")); !os.IsNotExist(err) {
			t.Errorf("%s: what a daemon added is on the machine: %v", how, err)
		}
		// The node starts again.
		if err := unix.Unmount(node, 0); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(machine, "portmap"), "new")
		if err := offer(machine, node, layers); err != nil {
			t.Fatal(err)
		}
		reads(filepath.Join(node, "portmap"), "new")
		reads(filepath.Join(node, "flannel"), "the daemon's")
		if err := unix.Unmount(node, 0); err != nil {
			t.Fatal(err)
		}
	}
}
