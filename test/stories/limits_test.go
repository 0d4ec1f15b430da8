package stories

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// smallDisk is a folder with a disk of its own, of so many MiB.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	needs.Root(t, "a small disk needs root")
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+"m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestDiskWithoutRoom starts control planes on disks that are too small, or full.
func TestDiskWithoutRoom(t *testing.T) {
	t.Parallel()
	const room, hint = "no space left on device", "free some space"
	dir := smallDisk(t, "2")
	refused(t, exec.Command(needs.Everynode(t, "../.."), "server", "--data-dir", dir, "--listen", "127.0.0.1:0"), dir, room, hint)

	dir = smallDisk(t, "200")
	_, server := startServer(t, dir)
	kubectl := func(args ...string) (string, error) {
		out, err := exec.Command(needs.Everynode(t, "../.."), append([]string{"kubectl", "--data-dir", dir}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := kubectl("create", "configmap", "note", "--from-literal=a=b"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stopServer(t, server)
	fill := filepath.Join(dir, "fill")
	if err := fillDisk(fill); err != nil {
		t.Fatal(err)
	}
	var complaint strings.Builder
	again := exec.Command(needs.Everynode(t, "../.."), "server", "--data-dir", dir, "--listen", "127.0.0.1:0")
	again.Stderr = &complaint
	err := runWithin(again)
	lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
	// Libraries that are stopping may still log after the last word.
	last := ""
	for _, line := range lines {
		if strings.HasPrefix(line, "everynode: ") {
			last = line
		}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(last, room) {
		t.Errorf("on a full disk the server ended with %v, and its last word was %q", err, last)
	}
	// So the library says of a request that was cut off that it did not crash.
	harmless := strings.NewReplacer("panicked: false", "", "panic-reason: <nil>", "")
	for _, line := range lines {
		if strings.HasPrefix(line, "F") || strings.Contains(harmless.Replace(line), "panic") || strings.Contains(line, "goroutine") {
			t.Errorf("on a full disk the server crashes: %s", line)
		}
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	_, server = startServer(t, dir)
	if out, err := kubectl("get", "configmap", "note", "-o", "jsonpath={.data.a}"); err != nil || out != "b" {
		t.Errorf("what was stored before the disk was full is %q (%v)", out, err)
	}
	stopServer(t, server)
}

// fillDisk writes until there is no room.
func fillDisk(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 1 << 12, 1} {
		for chunk := make([]byte, size); err == nil; {
			_, err = f.Write(chunk)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		err = nil
	}
	return nil
}

// TestUpTwiceAtOnce starts one cluster from several places at the same moment:
// one does it, the others say so.
func TestUpTwiceAtOnce(t *testing.T) {
	t.Parallel()
	binary := needs.Everynode(t, "../..")
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	t.Cleanup(func() {
		if out, err := exec.Command(binary, "down", "--purge", "--data-dir", dir).CombinedOutput(); err != nil {
			t.Errorf("down: %v: %s", err, out)
		}
	})
	const tries = 4
	var said [tries]string
	var failed [tries]error
	var all sync.WaitGroup
	for i := range tries {
		all.Go(func() {
			out, err := exec.Command(binary, "up", "--detach", "--data-dir", dir, "--api-port", port, "--runtime", "simulated", "--nodes", "1").CombinedOutput()
			said[i], failed[i] = string(out), err
		})
	}
	all.Wait()
	made := 0
	for i := range tries {
		switch {
		case failed[i] == nil && strings.Contains(said[i], "This cluster runs already"):
		case failed[i] == nil && strings.Contains(said[i], "A new cluster in "):
			made++
		case failed[i] != nil && strings.HasPrefix(said[i], "everynode: another everynode") && strings.Contains(said[i], "is at work on this cluster (starting); wait for it") && strings.Count(said[i], "\n") == 1:
		default:
			t.Errorf("one of several said (%v):\n%s", failed[i], said[i])
		}
	}
	if made != 1 {
		t.Errorf("the cluster was made %d times:\n%s", made, strings.Join(said[:], "\n"))
	}
	out, err := exec.Command(binary, "kubectl", "--data-dir", dir, "get", "nodes", "-o", "name").CombinedOutput()
	if err != nil || string(out) != "node/sim-0001\n" {
		t.Errorf("the nodes are %q (%v), want one", out, err)
	}
}
