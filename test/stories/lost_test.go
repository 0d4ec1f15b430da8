package stories

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// losemachine ends the server as a power cut does, and takes its disk: database, keys
// and all. What started it is held, as if it had been on that machine too.
func loseMachine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: losemachine")
	}
	content, err := os.ReadFile(filepath.Join(ts.Getenv("DATA"), "local.json"))
	ts.Check(err)
	var state struct {
		Supervisor, Server struct {
			PID int `json:"pid"`
		}
	}
	ts.Check(json.Unmarshal(content, &state))
	if state.Supervisor.PID < 2 || state.Server.PID < 2 {
		ts.Fatalf("the cluster says that it runs as %+v", state)
	}
	ts.Check(syscall.Kill(state.Supervisor.PID, syscall.SIGSTOP))
	ts.Defer(func() { _ = syscall.Kill(state.Supervisor.PID, syscall.SIGCONT) })
	ts.Check(syscall.Kill(state.Server.PID, syscall.SIGKILL))
	lost := filepath.Join(ts.Getenv("WORK"), "lost")
	ts.Check(os.Mkdir(lost, 0o700))
	for _, name := range []string{"etcd", "pki", "encryption.yaml", "version.json", "kubeconfig"} {
		ts.Check(os.Rename(filepath.Join(ts.Getenv("DATA"), name), filepath.Join(lost, name)))
	}
}

// startprinted runs, in the background and until the script ends, the command for a
// server that the last command has printed.
func startPrinted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: startprinted")
	}
	lines := strings.Split(ts.ReadFile("stdout"), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "  everynode server ") })
	if at < 0 {
		ts.Fatalf("no command was printed")
	}
	words := strings.Fields(lines[at])
	log, err := os.Create(filepath.Join(ts.Getenv("WORK"), "restored.log"))
	ts.Check(err)
	server := exec.Command(ts.Getenv("EVERYNODE"), words[1:]...)
	server.Stdout, server.Stderr = log, log
	ts.Check(server.Start())
	ts.Defer(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = log.Close()
	})
}
