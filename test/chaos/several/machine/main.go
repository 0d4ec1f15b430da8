// Command machine is the first and only program of an emulated machine on which a server runs:
// it mounts what there is, gives the machine its address, and does what it is told (package hand).
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/test/emulated/hand"
)

// disk is where the machine's disk is mounted.
const disk = "/data"

func main() {
	if err := run(); err != nil {
		fmt.Println("machine:", err)
	}
	for {
		time.Sleep(time.Hour) // the kernel does not bear the end of its first program
	}
}

func run() error {
	for _, m := range []struct{ what, at string }{
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"devtmpfs", "/dev"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
	} {
		if err := errors.Join(os.MkdirAll(m.at, 0o755), unix.Mount(m.what, m.at, m.what, 0, "")); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	told, err := commandLine()
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Sethostname([]byte(told["name"])), mountDisk()); err != nil {
		return err
	}
	for device, address := range map[string]string{"lo": "127.0.0.1", "eth0": hand.Address, "eth1": told["address"]} {
		if err := up(device, address); err != nil {
			return fmt.Errorf("bring up %s: %w", device, err)
		}
	}
	listener, err := hand.Listen()
	if err != nil {
		return err
	}
	fmt.Println("machine: ready")
	return hand.Serve(listener)
}

// loadModules loads the kernel's modules that are named in a list, in its order.
func loadModules(dir string) error {
	list, err := os.ReadFile(filepath.Join(dir, "order"))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(list)) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

// commandLine is what the machine's maker has said, machine.KEY=VALUE.
func commandLine() (map[string]string, error) {
	text, err := os.ReadFile("/proc/cmdline")
	out := map[string]string{}
	for word := range strings.FieldsSeq(string(text)) {
		if key, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(key, "machine.") {
			out[strings.TrimPrefix(key, "machine.")] = value
		}
	}
	return out, err
}

func mountDisk() error {
	if err := os.MkdirAll(disk, 0o700); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := unix.Mount("/dev/vda", disk, "ext4", 0, "")
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// up gives a device its address, in a network of 256.
func up(device, address string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := net.InterfaceByName(device); err == nil {
			break
		}
		if time.Now().After(end) {
			return errors.New("there is no such device")
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, set := range []struct {
		request uint
		do      func(*unix.Ifreq) error
	}{
		{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(net.ParseIP(address).To4()) }},
		{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 255, 0}) }},
		{unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		r, err := unix.NewIfreq(device)
		if err == nil {
			err = set.do(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, set.request, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
