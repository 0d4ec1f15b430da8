// Command pause holds a pod's namespaces open. It is the first process of a
// pod sandbox and, for local nodes, of a node's process namespace: it collects
// the children that others leave behind and ends at SIGTERM or SIGINT.
//
// One copy runs for every pod, so it imports package syscall alone and stays
// under 2 MiB resident. The two signals need no code: Go's runtime ends the
// process when one comes that nobody asked for, also as process 1.
package main

import (
	"runtime"
	"syscall"
)

// idle bounds how long an orphan that ended between the last wait and the
// sleep stays uncollected, in seconds.
const idle = 60

// The kernel hands a signal for the process to its first thread, so that
// thread must be the one that sleeps.
func init() { runtime.LockOSThread() }

func main() {
	for {
		_, err := syscall.Wait4(-1, nil, 0, nil)
		if err == syscall.ECHILD {
			// SIGCHLD, of the next orphan that ends, cuts the sleep short.
			_ = syscall.Nanosleep(&syscall.Timespec{Sec: idle}, nil)
		}
	}
}
