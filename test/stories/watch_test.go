package stories

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// watch FILE kubectl ARGS... runs kubectl in the background, with its output to
// a file, until the script ends.
func watch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "kubectl" {
		ts.Fatalf("usage: watch FILE kubectl ARGS...")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	cmd := exec.Command(ts.Getenv("EVERYNODE"), args[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+ts.Getenv("KUBECONFIG"), "HOME="+ts.Getenv("WORK"))
	cmd.Stdout, cmd.Stderr = f, f
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = f.Close()
	})
}

// inorder FILE REGEXP... wants lines of the file that match, one after the
// other; before the first and in between there may be others.
func inOrder(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: inorder FILE REGEXP...")
	}
	text := ts.ReadFile(args[0])
	lines := strings.Split(text, "\n")
	for i, want := range args[1:] {
		re, err := regexp.Compile(want)
		ts.Check(err)
		for len(lines) > 0 && !re.MatchString(lines[0]) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			ts.Fatalf("no line matches %q (number %d), in this order, in\n%s", want, i+1, text)
		}
		lines = lines[1:]
	}
}

// atmost NUMBER FILE reads a watch of pods, in lines of the kind of event, the
// pod's name, its node and perhaps its phase, and wants never more of them on a
// node that have not ended.
func atMost(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: atmost NUMBER FILE")
	}
	most, err := strconv.Atoi(args[0])
	ts.Check(err)
	text := ts.ReadFile(args[1])
	there := map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		fields := append(strings.Fields(line), "", "", "", "")
		event, name, node, phase := fields[0], fields[1], fields[2], fields[3]
		if there[node] == nil {
			there[node] = map[string]bool{}
		}
		if event == "DELETED" || phase == "Succeeded" || phase == "Failed" {
			delete(there[node], name)
		} else {
			there[node][name] = true
		}
		if len(there[node]) > most {
			ts.Fatalf("more than %d at once, after the line %sof\n%s", most, line, text)
		}
	}
	if !strings.Contains(text, "ADDED ") {
		ts.Fatalf("%s shows nothing:\n%s", args[1], text)
	}
}

// agent stop|start NODE stops a node's agent, as a machine stops that hangs, or
// lets it go on. Its containers run all the time.
func agent(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"stop": syscall.SIGSTOP, "start": syscall.SIGCONT}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: agent stop|start NODE")
	}
	pid := nodeProcess(ts, args[1], "agent")
	ts.Check(syscall.Kill(pid, signals[args[0]]))
	if args[0] == "stop" {
		ts.Defer(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // else it takes no orders to end
	}
}

// later TIME DURATION TIME wants the second time to be at least so much after
// the first. The API tells whole seconds.
func later(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: later TIME DURATION TIME")
	}
	first, err := time.Parse(time.RFC3339, args[0])
	ts.Check(err)
	least, err := time.ParseDuration(args[1])
	ts.Check(err)
	second, err := time.Parse(time.RFC3339, args[2])
	ts.Check(err)
	if second.Before(first.Add(least)) {
		ts.Fatalf("%s is less than %s after %s", args[2], least, args[0])
	}
}
