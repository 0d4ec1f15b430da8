// Command machine is the first and only program of an emulated machine on which a server runs:
// it mounts what there is, gives the machine its address, and does what it is told on a port that
// only the machine's maker reaches: run programs, keep a server running, set the clock.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// port is where it is told what to do.
const port = 7000

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
	for _, m := range []struct{ what, at string }{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"}} {
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
	for device, address := range map[string]string{"lo": "127.0.0.1", "eth0": "10.0.2.15", "eth1": told["address"]} {
		if err := up(device, address); err != nil {
			return fmt.Errorf("bring up %s: %w", device, err)
		}
	}
	fmt.Println("machine: ready")
	return serve()
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

// keeper keeps a program running, and what it said last.
type keeper struct {
	mu    sync.Mutex
	begun bool
	lines []string
}

const remembered = 200

func (k *keeper) keep(args []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.begun {
		return
	}
	k.begun = true
	go func() {
		for ; ; time.Sleep(time.Second) {
			read, write := io.Pipe()
			command := exec.Command(args[0], args[1:]...)
			command.Stdout, command.Stderr = write, write
			command.Env = append(os.Environ(), "HOME=/root", "PATH=/bin")
			go func() {
				err := command.Run()
				fmt.Fprintln(write, "it has ended:", err)
				write.Close()
			}()
			for lines := bufio.NewScanner(read); lines.Scan(); {
				k.mu.Lock()
				k.lines = append(k.lines, lines.Text())
				k.lines = k.lines[max(0, len(k.lines)-remembered):]
				k.mu.Unlock()
			}
			_, _ = io.Copy(io.Discard, read) // lines that are too long
		}
	}()
}

func (k *keeper) said() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.lines, "\n")
}

func serve() error {
	k := &keeper{}
	words := func(r *http.Request) (args []string, err error) {
		err = json.NewDecoder(r.Body).Decode(&args)
		if err == nil && len(args) == 0 {
			err = errors.New("nothing was said")
		}
		return args, err
	}
	http.HandleFunc("GET /said", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, k.said()) })
	http.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, r.URL.Query().Get("path")) })
	http.HandleFunc("GET /clock", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, time.Now().Format(time.RFC3339Nano)) })
	http.HandleFunc("POST /keep", func(w http.ResponseWriter, r *http.Request) {
		args, err := words(r)
		if err == nil {
			k.keep(args)
		}
		answer(w, nil, err)
	})
	http.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		args, err := words(r)
		var out []byte
		if err == nil {
			out, err = exec.CommandContext(r.Context(), args[0], args[1:]...).CombinedOutput()
		}
		answer(w, out, err)
	})
	http.HandleFunc("POST /clock", func(w http.ResponseWriter, r *http.Request) {
		by, err := time.ParseDuration(r.URL.Query().Get("by"))
		if err == nil {
			now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
			err = unix.ClockSettime(unix.CLOCK_REALTIME, &now)
		}
		answer(w, nil, err)
	})
	http.HandleFunc("POST /off", func(http.ResponseWriter, *http.Request) {
		unix.Sync()
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	})
	return http.ListenAndServe(fmt.Sprintf(":%d", port), nil) //nolint:gosec // Only its maker reaches it.
}

func answer(w http.ResponseWriter, out []byte, err error) {
	if err != nil {
		http.Error(w, fmt.Sprintf("%s: %v", strings.TrimSpace(string(out)), err), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(out)
}
