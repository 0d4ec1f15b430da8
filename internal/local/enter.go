package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// command describes a program to start.
type command struct {
	path string // inside the node, for one that starts there
	name string // what the process is called
	args []string
	mark string   // in addition to our environment
	env  []string // likewise
	log  string   // file on the host that gets its output
}

// build makes the command with its log open; the caller closes the log after
// the start. Every child has its own session: a Ctrl-C in the terminal reaches
// the supervisor alone, which stops the others in order.
func (c command) build() (*exec.Cmd, *os.File, error) {
	if err := os.MkdirAll(filepath.Dir(c.log), 0o755); err != nil {
		return nil, nil, fmt.Errorf("make log folder: %w", err)
	}
	log, err := os.OpenFile(c.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	cmd := &exec.Cmd{
		Path: c.path, Args: append([]string{c.name}, c.args...), Dir: "/",
		Env:    append(os.Environ(), append([]string{"PATH=" + searchPath(), c.mark}, c.env...)...),
		Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	return cmd, log, nil
}

// start starts the program on the host.
func (c command) start() (*exec.Cmd, error) {
	cmd, log, err := c.build()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return cmd, nil
}

// nodeNamespaces are those of a node's process 1, in the order of entering.
// The mount namespace is the last of them: the others are found by path.
var nodeNamespaces = []struct {
	name string
	flag int
}{
	{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"net", unix.CLONE_NEWNET},
	{"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS},
}

// startInside starts the program in the namespaces of a node's process 1.
func (c command) startInside(init Process) (*exec.Cmd, error) {
	cmd, log, err := c.build()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	err = onOwnThread(func() error {
		if err := enter(init); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return cmd, nil
}

// onOwnThread runs what changes the namespaces of its thread. The thread ends
// with it, instead of running other goroutines in the wrong place.
//
// The process's first thread cannot end, and is what others take for the place
// of the whole process. If the scheduler offers it, it is held while another
// one is used.
func onOwnThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			result <- onOwnThread(do)
			runtime.UnlockOSThread()
			return
		}
		result <- do()
	}()
	return <-result
}

// enter moves the calling thread into the namespaces of a process. Children
// of the thread are born there; the process namespace applies to them only.
func enter(init Process) error {
	fds := make([]int, 0, len(nodeNamespaces))
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for _, ns := range nodeNamespaces {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", init.PID, ns.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s namespace of process %d: %w", ns.name, init.PID, err)
		}
		fds = append(fds, fd)
	}
	if !init.alive() {
		return errors.New("the node's first process has ended")
	}
	// A thread that shares its root and working folder with others cannot
	// change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the working folder: %w", err)
	}
	for i, ns := range nodeNamespaces {
		if err := unix.Setns(fds[i], ns.flag); err != nil {
			return fmt.Errorf("enter %s namespace of process %d: %w", ns.name, init.PID, err)
		}
	}
	return nil
}
