package process

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

// Command describes a program to start.
type Command struct {
	Path string // inside the node, for one that starts there
	Name string // what the process is called
	Args []string
	Mark string   // in addition to our environment
	Env  []string // likewise
	Log  string   // file on the host that gets its output
}

// Build makes the command with its log open; the caller closes the log after
// the start. Every child has its own session: a Ctrl-C in the terminal reaches
// the supervisor alone, which stops the others in order.
func (c Command) Build() (*exec.Cmd, *os.File, error) {
	if err := os.MkdirAll(filepath.Dir(c.Log), 0o755); err != nil {
		return nil, nil, fmt.Errorf("make log folder: %w", err)
	}
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	cmd := &exec.Cmd{
		Path: c.Path, Args: append([]string{c.Name}, c.Args...), Dir: "/",
		Env:    append(os.Environ(), append([]string{"PATH=" + SearchPath(), c.Mark}, c.Env...)...),
		Stdout: log, Stderr: log,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	return cmd, log, nil
}

// Start starts the program on the host.
func (c Command) Start() (*exec.Cmd, error) {
	cmd, log, err := c.Build()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
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

// StartInside starts the program in the namespaces of a node's process 1.
func (c Command) StartInside(init Process) (*exec.Cmd, error) {
	cmd, log, err := c.Build()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	err = OnOwnThread(func() error {
		if err := enter(init); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return cmd, nil
}

// OnOwnThread runs what changes the namespaces of its thread. The thread ends
// with it, instead of running other goroutines in the wrong place.
//
// The process's first thread cannot end, and is what others take for the place
// of the whole process. If the scheduler offers it, it is held while another
// one is used.
func OnOwnThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			result <- OnOwnThread(do)
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
	if !init.Alive() {
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
