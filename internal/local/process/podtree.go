package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// relative is a process, its parent, and what it is called.
type relative struct {
	process Process
	parent  int
	name    string
}

// PodProcesses finds the first processes of a node's containers.
func PodProcesses(init Process) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []relative
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		parent, start, running, err := parseStat(string(raw))
		if err != nil || !running {
			continue
		}
		name := string(raw)
		name = name[strings.IndexByte(name, '(')+1 : strings.LastIndexByte(name, ')')]
		all = append(all, relative{Process{pid, start}, parent, name})
	}
	return containersOf(init.PID, all)
}

// containersOf picks, from all processes, the children of the containerd shims
// that a node's process 1 has adopted, except the sandboxes' pause programs:
// these hold the pods' namespaces until the end.
func containersOf(init int, all []relative) []Process {
	shims := map[int]bool{}
	for _, r := range all {
		if r.parent == init && strings.HasPrefix(r.name, "containerd-shim") {
			shims[r.process.PID] = true
		}
	}
	var found []Process
	for _, r := range all {
		if shims[r.parent] && r.name != "pause" {
			found = append(found, r.process)
		}
	}
	return found
}
