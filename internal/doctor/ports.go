package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/everynode/everynode/internal/doctor/diagnosis"
)

// port looks who listens at a port of this machine.
func port(number int, what, flag string) diagnosis.Port {
	p := diagnosis.Port{Number: number, For: what, Flag: flag}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if inode := listener(string(table), number); inode != "" {
			p.Taken = true
			p.By, p.PID = holder(inode)
			return p
		}
	}
	return p
}

// listener returns the socket that listens at the port, by a table of the kernel.
func listener(table string, number int) (inode string) {
	const listening = "0A"
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != listening {
			continue
		}
		if _, hex, ok := strings.Cut(fields[1], ":"); ok {
			if at, err := strconv.ParseUint(hex, 16, 16); err == nil && int(at) == number {
				return fields[9]
			}
		}
	}
	return ""
}

// holder returns the process that has the socket, if this user may know that.
func holder(inode string) (name string, pid int) {
	want := fmt.Sprintf("socket:[%s]", inode)
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return "", 0
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err != nil || to != want {
			continue
		}
		process := filepath.Dir(filepath.Dir(file))
		comm, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil {
			continue
		}
		if pid, err = strconv.Atoi(filepath.Base(process)); err == nil {
			return strings.TrimSpace(string(comm)), pid
		}
	}
	return "", 0
}
