package stories

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"

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
	ts.Check(syscall.Kill(agentPID(ts, args[0]), syscall.SIGKILL))
}

// agentPID is the process of a node's agent.
func agentPID(ts *testscript.TestScript, node string) int {
	data, err := os.ReadFile(filepath.Join(ts.Getenv("DATA"), "local.json"))
	ts.Check(err)
	var state struct {
		Nodes map[string]struct {
			Agent struct {
				PID int `json:"pid"`
			} `json:"agent"`
		} `json:"nodes"`
	}
	ts.Check(json.Unmarshal(data, &state))
	pid := state.Nodes[node].Agent.PID
	if pid == 0 {
		ts.Fatalf("no agent of %s is known", node)
	}
	return pid
}
