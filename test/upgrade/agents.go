package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/local/nodeinit"
)

// installOnNodes has the agents be the installed program when they next start: each node has the file mounted that was
// there when it was made.
func (f *fleet) installOnNodes() error {
	if !f.real {
		return nil
	}
	now, err := f.processes()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there are no nodes yet
	}
	for name, node := range now.Nodes {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // for good: the thread ends in the node's namespace
			done <- f.mountIn(node.Init.PID)
		}()
		if mounted := <-done; mounted != nil {
			err = errors.Join(err, fmt.Errorf("install the program on %s: %w", name, mounted))
		}
	}
	return err
}

// mountIn mounts the program in the place of the one before, as a process sees files. It takes the thread there.
func (f *fleet) mountIn(pid int) error {
	files, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }() // it is only read
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave what the threads share: %w", err)
	}
	if err := unix.Setns(int(files.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the node: %w", err)
	}
	if err := unix.Unmount(nodeinit.Executable, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", nodeinit.Executable, err)
	}
	if err := unix.Mount(f.program, nodeinit.Executable, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", nodeinit.Executable, err)
	}
	return nil
}

// runs fails while a process has another program than the one that is installed.
func (f *fleet) runs(pid int) error {
	is, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return err
	}
	wanted, err := os.Stat(f.program)
	if err == nil && !os.SameFile(is, wanted) {
		err = errors.New("it runs another program than the one that is installed")
	}
	return err
}
