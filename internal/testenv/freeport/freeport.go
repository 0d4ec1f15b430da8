// Package freeport finds TCP ports for servers that tests start in other
// processes, which cannot be asked for the port they got.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync/atomic"
)

// Ports above first belong to no well-known part of a cluster. Those from last
// on may be node ports, or the kernel's.
const first, last = 10300, 30000

// next counts up from a random place, so that tests in one process never get the
// same port, and those of processes side by side hardly ever.
var next atomic.Uint32

func init() { next.Store(rand.Uint32N(last)) }

// Take returns a port of 127.0.0.1 that nobody listens on. It is outside the
// range from which the kernel takes the near end of connections: one of that
// range, free at the moment, may be taken a moment later by any program.
func Take() (int, error) {
	end, err := ephemeral()
	if err != nil {
		return 0, err
	}
	if end = min(end, last); end <= first {
		return 0, fmt.Errorf("the kernel takes ports for connections from %d on, which leaves none for tests", end)
	}
	for range end - first {
		port := first + int(next.Add(1))%(end-first)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port is free")
}

// ephemeral is where the kernel's range begins.
func ephemeral() (int, error) {
	const path = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the kernel's ports: %w", err)
	}
	var low, high int
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		return 0, fmt.Errorf("read the kernel's ports in %s: %w", path, err)
	}
	return low, nil
}
