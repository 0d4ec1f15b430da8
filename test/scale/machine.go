package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine describes where the figures come from.
func machine() string {
	return fmt.Sprintf("%s, %d cores, %s, Linux %s, %s", field("/proc/cpuinfo", "model name"), runtime.NumCPU(),
		strings.ReplaceAll(field("/proc/meminfo", "MemTotal"), " kB", " KiB of memory"),
		firstLine("/proc/sys/kernel/osrelease"), runtime.Version())
}

func field(path, name string) string {
	data, _ := os.ReadFile(path)
	for line := range strings.SplitSeq(string(data), "\n") {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown " + name
}

func firstLine(path string) string {
	data, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}
