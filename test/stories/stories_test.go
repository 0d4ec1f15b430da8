// Package stories runs what users do, as scripts: real commands, real output,
// real containers. Each script under testdata gets a cluster of its own.
//
// A script whose first line is "# nodes: simulated too" is run a second time
// on simulated nodes, and one that begins with "# nodes: simulated" only there:
// what it is about is the same on all nodes.
package stories

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everynode/everynode/internal/testenv/freeport"
	"github.com/everynode/everynode/internal/testenv/needs"
)

// patience is how long `eventually` waits. Only a failure takes that long.
const patience = 3 * time.Minute

// longestPause is between two looks of `eventually`: each is a process of its
// own, which takes time from what is waited for.
const longestPause = time.Second

var keep = flag.Bool("keep", false, "keep the clusters of failed stories running")

func TestOnContainers(t *testing.T) {
	t.Parallel()
	needs.Root(t, "real nodes need root")
	runStories(t, "containerd", scripts(t, func(text string) bool { return !strings.HasPrefix(text, "# nodes: simulated\n") }))
}

func TestOnSimulatedNodes(t *testing.T) {
	t.Parallel()
	runStories(t, "simulated", scripts(t, func(text string) bool { return strings.HasPrefix(text, "# nodes: simulated") }))
}

func scripts(t *testing.T, want func(text string) bool) (files []string) {
	t.Helper()
	all, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(all) == 0 {
		t.Fatalf("no scripts are found: %v", err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if want(string(text)) {
			files = append(files, file)
		}
	}
	return files
}

// parallel runs scripts beside each other, each on a cluster of its own and as
// many as `go test -parallel` says: they mostly wait.
type parallel struct{ *testing.T }

func (p parallel) Run(name string, f func(testscript.T)) {
	p.T.Run(name, func(t *testing.T) { f(parallel{t}) })
}
func (p parallel) Verbose() bool { return testing.Verbose() }

func runStories(t *testing.T, runtime string, files []string) {
	binary := needs.Everynode(t, "../..")
	testscript.RunT(parallel{t}, testscript.Params{
		Files:    files,
		TestWork: *keep, // clusters live in the folders of their scripts
		Setup: func(e *testscript.Env) error {
			e.Values[registriesKey{}] = registries{}
			return startCluster(e, binary, runtime)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"kubectl": kubectl, "eventually": eventually, "killserver": killServer, "nodefile": nodeFile, "capture": capture, "replace": replace,
			"registry": startRegistry, "registryserver": registryServer, "push": push, "pushindex": pushIndex, "signalserver": signalServer, "killagent": killAgent, "killruntime": killRuntime, "slowshims": slowShims, "killnode": killNode,
			"watch": watch, "inorder": inOrder, "atmost": atMost, "agent": agent, "later": later,
			"matrix": matrix, "outsidenames": outsideNames, "asknode": askNode,
			"losemachine": loseMachine, "startprinted": startPrinted, "packimage": packImage,
			"assemble": assemble, "ownfolder": ownFolder,
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "containerd", "simulated":
				return name == runtime, nil
			case "newest":
				return *newest, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
	})
}

// startCluster starts three nodes and points the script's kubectl at them.
func startCluster(e *testscript.Env, binary, runtime string) error {
	dir := filepath.Join(e.WorkDir, "cluster")
	port, err := freePort()
	if err != nil {
		return err
	}
	start := func(args ...string) ([]byte, error) {
		return exec.Command(binary, append([]string{"up", "--data-dir", dir, "--api-port", port, "--runtime", runtime, "--detach"}, args...)...).CombinedOutput()
	}
	args, err := upFlags(e.WorkDir)
	if err != nil {
		return err
	}
	out, err := start(append([]string{"--nodes", "3"}, args...)...)
	e.Defer(func() {
		if e.T().(parallel).Failed() && *keep {
			return
		}
		if out, err := exec.Command(binary, "down", "--data-dir", dir, "--purge").CombinedOutput(); err != nil {
			e.T().Log(fmt.Sprintf("stop the cluster: %v\n%s", err, out))
			e.T().(parallel).Fail()
		}
	})
	if err != nil {
		return fmt.Errorf("start a cluster: %w\n%s", err, out)
	}
	nodes := []string{"node-1", "node-2", "node-3"}
	if runtime == "simulated" {
		nodes = []string{"sim-0001", "sim-0002", "sim-0003"}
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		return err
	}
	e.Vars = append(e.Vars, "EVERYNODE="+binary, "DATA="+dir, "KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "EXAMPLES="+examples,
		"PORT="+port, "RUNTIME="+runtime, "NODE1="+nodes[0], "NODE2="+nodes[1], "NODE3="+nodes[2], "HOME="+e.WorkDir)
	return nil
}

// upFlags are further flags of everynode up, which a script has in a file "up.flags".
func upFlags(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "up.flags"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

func freePort() (string, error) {
	port, err := freeport.Take()
	return strconv.Itoa(port), err
}

// kubectl ARGS... runs kubectl; stdout and stderr can be matched afterwards.
func kubectl(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec(ts.Getenv("EVERYNODE"), append([]string{"kubectl"}, args...)...)
	switch {
	case err != nil && !neg:
		ts.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	case err == nil && neg:
		ts.Fatalf("kubectl %s succeeded, and should not", strings.Join(args, " "))
	}
}

// eventually REGEXP kubectl|everynode ARGS... repeats a command until its output
// matches; with ! until it does not. A command that fails has the output of its error.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: eventually REGEXP kubectl ARGS...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	command := args[1:]
	switch command[0] {
	case "kubectl":
		command = append([]string{ts.Getenv("EVERYNODE")}, command...)
	case "everynode":
		command = append([]string{ts.Getenv("EVERYNODE")}, command[1:]...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out []byte
	pause := 100 * time.Millisecond
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = ts.Getenv("WORK")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+ts.Getenv("KUBECONFIG"), "HOME="+ts.Getenv("WORK"), "EVERYNODE="+ts.Getenv("EVERYNODE"), "DATA="+ts.Getenv("DATA"))
		out, _ = cmd.CombinedOutput()
		if want.Match(out) != neg {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(pause*5/4, longestPause)
	}
	ts.Fatalf("%s never printed what matches %q (wanted a match: %v); the last output was:\n%s", strings.Join(args[1:], " "), args[0], !neg, out)
}

// killserver kills the control plane's process with SIGKILL, as a crash would.
func killServer(ts *testscript.TestScript, _ bool, _ []string) {
	pid, err := os.ReadFile(filepath.Join(ts.Getenv("DATA"), "server.lock"))
	ts.Check(err)
	ts.Check(ts.Exec("kill", "-9", strings.TrimSpace(string(pid))))
}

// nodefile NODE PATH TEXT writes a file into a node's own file system, for the
// folders that a node has of its own.
func nodeFile(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: nodefile NODE PATH TEXT")
	}
	path := filepath.Join(ts.Getenv("DATA"), "nodes", args[0], strings.NewReplacer("/var/log", "log").Replace(args[1]))
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	ts.Check(err)
	defer f.Close()
	_, err = f.WriteString(args[2] + "\n")
	ts.Check(err)
}

// capture NAME kubectl ARGS... puts a command's output into a variable.
func capture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 3 || args[1] != "kubectl" {
		ts.Fatalf("usage: capture NAME kubectl ARGS...")
	}
	cmd := exec.Command(ts.Getenv("EVERYNODE"), args[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+ts.Getenv("KUBECONFIG"), "HOME="+ts.Getenv("WORK"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		ts.Fatalf("%s: %v: %s", strings.Join(args[1:], " "), err, &stderr)
	}
	ts.Setenv(args[0], strings.TrimSpace(string(out)))
}

// replace FILE OLD NEW changes every OLD in a file of the script.
func replace(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	path := ts.MkAbs(args[0])
	text, err := os.ReadFile(path)
	ts.Check(err)
	if !bytes.Contains(text, []byte(args[1])) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(path, bytes.ReplaceAll(text, []byte(args[1]), []byte(args[2])), 0o600))
}
