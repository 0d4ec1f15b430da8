// Package nodes has nodes of a local cluster run another program.
package nodes

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/local/nodeinit"
	"github.com/everynode/everynode/internal/local/process"
)

// Install has the agent of a node be the program when it next starts, by a process of that node: a node has the file
// mounted that was there when it was made.
func Install(pid int, program string) error {
	return process.OnOwnThread(func() error { return mountIn(pid, program) })
}

// mountIn mounts a program in the place of the one before, as a process sees files. It takes the thread there.
func mountIn(pid int, program string) error {
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
	if err := unix.Mount(program, nodeinit.Executable, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", nodeinit.Executable, err)
	}
	return nil
}

// Runs fails while a process has another program than this one.
func Runs(pid int, program string) error {
	is, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return err
	}
	wanted, err := os.Stat(program)
	if err == nil && !os.SameFile(is, wanted) {
		err = errors.New("it runs another program than the one that is installed")
	}
	return err
}
