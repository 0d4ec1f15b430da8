// Package localtest runs tests on a machine that never had a cluster.
package localtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/network"
)

// freshMachine is set for tests that run in a process with mounts and a network
// of its own, in which everything is as on a machine that never had a cluster.
const freshMachine = "EVERYNODE_TEST_FRESH_MACHINE"

// OnFreshMachine runs the calling test again on a fresh machine, and reports
// whether this is that run.
func OnFreshMachine(t *testing.T) bool {
	t.Helper()
	if os.Getenv(freshMachine) != "" {
		makeFresh(t)
		return true
	}
	found := machine.Inspect(t.Context())
	if missing := found.Missing(); !found.Root || len(missing) > 0 {
		t.Skipf("real nodes need root and %v", missing)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), freshMachine+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a fresh machine: %v\n%s", err, out)
	}
	return false
}

// makeFresh hides the machine's folders that clusters change, and gives the
// network a way out.
func makeFresh(t *testing.T) {
	t.Helper()
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, dir := range []string{"/run", "/etc", "/opt"} {
		err = errors.Join(err, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	}
	err = errors.Join(err, os.WriteFile(network.ForwardingFile, []byte("0"), 0o644))
	for _, args := range []string{"link add outside type veth peer name beyond", "link set outside up",
		"route add default dev outside"} {
		if out, ipErr := exec.Command(machine.LookPath("ip"), strings.Fields(args)...).CombinedOutput(); ipErr != nil {
			err = errors.Join(err, fmt.Errorf("ip %s: %w: %s", args, ipErr, out))
		}
	}
	if err != nil {
		t.Fatalf("make the machine fresh: %v", err)
	}
}
