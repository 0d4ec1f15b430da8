// Package hand is in an emulated machine what does as the machine's maker tells: it runs programs, keeps one running,
// reads files, sets the clock.
package hand

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Port is where it is told what to do. Only the machine's maker is to reach it.
const Port = 7000

// Address is what the machine has in the network that leads to its maker, and to nowhere else.
const Address = "10.0.2.15"

// Listen takes the port.
func Listen() (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "tcp", fmt.Sprintf(":%d", Port))
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

// Serve does what it is told, for as long as the machine runs.
func Serve(listener net.Listener) error {
	k, mux := &keeper{}, http.NewServeMux()
	words := func(r *http.Request) (args []string, err error) {
		err = json.NewDecoder(r.Body).Decode(&args)
		if err == nil && len(args) == 0 {
			err = errors.New("nothing was said")
		}
		return args, err
	}
	mux.HandleFunc("GET /said", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, k.said()) })
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, r.URL.Query().Get("path"))
	})
	mux.HandleFunc("GET /clock", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, time.Now().Format(time.RFC3339Nano))
	})
	mux.HandleFunc("POST /keep", func(w http.ResponseWriter, r *http.Request) {
		args, err := words(r)
		if err == nil {
			k.keep(args)
		}
		answer(w, nil, err)
	})
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		args, err := words(r)
		var out []byte
		if err == nil {
			out, err = exec.CommandContext(r.Context(), args[0], args[1:]...).CombinedOutput()
		}
		answer(w, out, err)
	})
	mux.HandleFunc("POST /clock", func(w http.ResponseWriter, r *http.Request) {
		by, err := time.ParseDuration(r.URL.Query().Get("by"))
		if err == nil {
			now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
			err = unix.ClockSettime(unix.CLOCK_REALTIME, &now)
		}
		answer(w, nil, err)
	})
	mux.HandleFunc("POST /off", func(http.ResponseWriter, *http.Request) {
		unix.Sync()
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	})
	return http.Serve(listener, mux) //nolint:gosec // Only its maker reaches it.
}

func answer(w http.ResponseWriter, out []byte, err error) {
	if err != nil {
		http.Error(w, fmt.Sprintf("%s: %v", strings.TrimSpace(string(out)), err), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(out)
}
