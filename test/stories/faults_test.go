package stories

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// signalServer NAME sends the control plane's process a signal. STOP makes it unreachable, as a broken network would, until CONT.
func signalServer(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: signalserver STOP|CONT")
	}
	pid, err := os.ReadFile(filepath.Join(ts.Getenv("DATA"), "server.lock"))
	ts.Check(err)
	signal := func(name string) error { return ts.Exec("kill", "-"+name, strings.TrimSpace(string(pid))) }
	ts.Check(signal(args[0]))
	if args[0] == "STOP" {
		// A process that stands still cannot be asked to end.
		ts.Defer(func() { _ = signal("CONT") })
	}
}

// killAgent NODE kills a node's agent with SIGKILL, as a crash would; it is started again.
func killAgent(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: killagent NODE")
	}
	killProcess(ts, args[0], "agent")
}

// killRuntime NODE does the same to its container runtime.
func killRuntime(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: killruntime NODE")
	}
	killProcess(ts, args[0], "containerd")
}

// slowShims NODE kills a node's container runtime while the shims of its containers stand still, as on a machine under
// load, and has them go on after the five seconds that containerd gives them by itself.
func slowShims(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: slowshims NODE")
	}
	shims := shimsOf(ts, args[0])
	signal := func(sig syscall.Signal) {
		for _, pid := range shims {
			ts.Check(syscall.Kill(pid, sig))
		}
	}
	killed := nodeProcess(ts, args[0], "containerd")
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	ts.Check(syscall.Kill(killed, syscall.SIGKILL))
	for deadline := time.Now().Add(patience); nodeProcess(ts, args[0], "containerd") == killed; {
		if time.Now().After(deadline) {
			ts.Fatalf("the runtime of %s does not start again", args[0])
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(8 * time.Second)
}

// shimsOf are the processes that containerd runs beside the containers of a node. They share its file systems.
func shimsOf(ts *testscript.TestScript, node string) []int {
	space := func(pid int) string {
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)) // a process that has ended is in none
		return name
	}
	files := space(nodeProcess(ts, node, "containerd"))
	entries, err := os.ReadDir("/proc")
	ts.Check(err)
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		program, _, _ := strings.Cut(string(command), "\x00")
		if strings.HasPrefix(filepath.Base(program), "containerd-shim") && space(pid) == files {
			out = append(out, pid)
		}
	}
	if len(out) == 0 {
		ts.Fatalf("%s has no shims", node)
	}
	return out
}

// killNode NODE ends every process of a node at once, as a power cut does; it boots again.
func killNode(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: killnode NODE")
	}
	killProcess(ts, args[0], "init")
}

// killProcess kills a process of a node. One that has ended already is being
// started again, so it waits for that one.
func killProcess(ts *testscript.TestScript, node, name string) {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := syscall.Kill(nodeProcess(ts, node, name), syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) && time.Now().Before(deadline) {
			continue
		}
		ts.Check(err)
		return
	}
}

// nodeProcess is the process of a node that its cluster's records call agent, containerd or init.
func nodeProcess(ts *testscript.TestScript, node, name string) int {
	pid := recordedProcess(ts, node, name)
	if pid == 0 {
		ts.Fatalf("no %s of %s is known", name, node)
	}
	return pid
}

// recordedProcess is the same; 0 while there is none.
func recordedProcess(ts *testscript.TestScript, node, name string) int {
	data, err := os.ReadFile(filepath.Join(ts.Getenv("DATA"), "local.json"))
	ts.Check(err)
	var state struct {
		Nodes map[string]map[string]json.RawMessage `json:"nodes"`
	}
	ts.Check(json.Unmarshal(data, &state))
	var process struct {
		PID int `json:"pid"`
	}
	if raw, ok := state.Nodes[node][name]; ok {
		ts.Check(json.Unmarshal(raw, &process))
	}
	return process.PID
}
