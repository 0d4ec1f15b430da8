package stories

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
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
