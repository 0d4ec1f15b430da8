package vm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testenv/eventually"
	"github.com/everynode/everynode/test/emulated"
)

const (
	// patience is how long a test waits for what must happen, on a machine with much else to do.
	patience = 10 * time.Minute
	// here and there are the addresses of the server and of the machine.
	here, there = "10.77.0.254", "10.77.0.1"
	// name is the machine's.
	name = "machine-1"
)

// machine is a computer with a disk that outlives it.
type machine struct {
	*emulated.Machine
	dir string
}

// newMachine makes the machine's disks and its cable, and switches it on.
func newMachine(t *testing.T, folder, tools string) *machine {
	t.Helper()
	m := &machine{dir: t.TempDir()}
	command(t, "cp", "--sparse=always", "--reflink=auto", filepath.Join(folder, "disk.img"), m.file("root.img"))
	// What is cached may be made again while the machine is off.
	command(t, "cp", filepath.Join(folder, "vmlinuz"), filepath.Join(folder, "initrd.img"), m.dir)
	command(t, "mke2fs", "-q", "-t", "ext4", "-L", "tools", "-d", tools, m.file("tools.img"), "1G")
	command(t, "ip", "tuntap", "add", "cable", "mode", "tap")
	t.Cleanup(func() { command(t, "ip", "link", "delete", "cable") })
	command(t, "ip", "address", "add", here+"/24", "dev", "cable")
	command(t, "ip", "link", "set", "cable", "up")
	m.on(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of what the machine said:\n%s", m.Console(40))
		}
		m.Kill()
	})
	return m
}

func (m *machine) file(name string) string { return filepath.Join(m.dir, name) }

// on switches the machine on, and waits until it does what it is told.
func (m *machine) on(t *testing.T) {
	t.Helper()
	booted, err := emulated.Boot(emulated.Hardware{
		Name: name, Dir: m.dir, Patience: patience, Processors: 2, Memory: 2048,
		Kernel: m.file("vmlinuz"), MemoryDisk: m.file("initrd.img"),
		// There are no secrets on it to be hidden from anybody, and hiding them costs time under emulation.
		CommandLine: fmt.Sprintf("root=/dev/vda rw quiet mitigations=off net.ifnames=0 systemd.hostname=%s ip=%s::%s:255.255.255.0::eth1:off", name, there, here),
		More: []string{
			"-drive", "if=virtio,format=raw,file=" + m.file("root.img"), "-drive", "if=virtio,format=raw,readonly=on,file=" + m.file("tools.img"),
			"-netdev", "tap,id=cable,ifname=cable,script=no,downscript=no", "-device", "virtio-net-pci,netdev=cable,id=card,mac=52:54:00:77:00:01",
		},
	})
	if err != nil {
		t.Fatal(err) // what is off is still there for who clears up
	}
	m.Machine = booted
	m.await(t, "the machine starts", func(ctx context.Context) error {
		_, err := m.knock(ctx, "true")
		return err
	})
}

// await waits for something that a machine that is off does not do.
func (m *machine) await(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	eventually.Nil(t, patience, what, func(ctx context.Context) error {
		select {
		case <-m.Ended():
			t.Fatalf("%s: the machine is off", what)
		default:
		}
		return check(ctx)
	})
}

// try runs a line of shell in the machine.
func (m *machine) try(ctx context.Context, line string) (string, error) {
	out, err := m.Ask(ctx, http.MethodPost, "/run", []string{"/bin/sh", "-ec", line})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

// knock tries, for a minute at most: who calls while the machine starts may never hear of it.
func (m *machine) knock(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return m.try(ctx, line)
}

// run runs a line of shell in the machine, and wants it to end well.
func (m *machine) run(t *testing.T, line string) string {
	t.Helper()
	out, err := m.try(t.Context(), line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return out
}

// boot is the kernel's own name of its run.
func (m *machine) boot(t *testing.T) string {
	t.Helper()
	return m.run(t, "cat /proc/sys/kernel/random/boot_id")
}

// reboot has systemd start the machine again.
func (m *machine) reboot(t *testing.T) {
	t.Helper()
	before := m.boot(t)
	_, _ = m.try(t.Context(), "systemctl reboot") // it may not live to say so
	m.await(t, "the machine starts again", func(ctx context.Context) error {
		now, err := m.knock(ctx, "cat /proc/sys/kernel/random/boot_id")
		if err == nil && now == before {
			err = errors.New("it still runs")
		}
		return err
	})
}

// plug pulls the network's cable, or puts it in.
func (m *machine) plug(t *testing.T, in bool) {
	t.Helper()
	if err := m.Tell(fmt.Sprintf(`{"execute": "set_link", "arguments": {"name": "card", "up": %v}}`, in)); err != nil {
		t.Fatal(err)
	}
}

func command(t *testing.T, words ...string) {
	t.Helper()
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(words, " "), err, out)
	}
}
