// Command upgrade runs a small cluster with an old program, replaces it by a new one,
// first for the servers, one after another, and then for the agents, and takes the step back.
// Nobody's container may notice: none is started again, no rollout begins, and kubectl, the old
// one and the new one, works after each step. Of several servers some answer all the while.
//
// `make test-upgrade` builds both programs and runs it. As root the nodes are real too.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/testenv/freeport"
)

// patience is how long a step may take.
const patience = 3 * time.Minute

func main() {
	from := flag.String("old", "", "the program of before")
	to := flag.String("new", "bin/everynode", "the program of now")
	flag.Parse()
	runtimes := []string{"simulated"}
	if os.Geteuid() == 0 {
		runtimes = append(runtimes, "containerd")
	}
	for _, runtime := range runtimes {
		for _, servers := range []int{1, 3} {
			if err := play(*from, *to, runtime, servers); err != nil {
				fmt.Fprintf(os.Stderr, "upgrade of %s: %v\n", title(runtime, servers), err)
				os.Exit(1)
			}
		}
	}
}

func title(runtime string, servers int) string {
	if servers == 1 {
		return "one server, " + runtime + " nodes"
	}
	return fmt.Sprintf("%d servers, %s nodes", servers, runtime)
}

// fleet is a cluster whose program is replaced.
type fleet struct {
	old, new string // programs
	program  string // what runs
	dir      string
	real     bool
	servers  int
}

func play(from, to, runtime string, servers int) (err error) {
	work, err := os.MkdirTemp("", "everynode-upgrade-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	f := &fleet{
		old:     from,
		new:     to,
		program: filepath.Join(work, "everynode"),
		dir:     filepath.Join(work, "cluster"),
		real:    runtime == "containerd",
		servers: servers,
	}
	port, err := freeport.Take()
	if err == nil {
		err = f.install(f.old)
	}
	if err != nil {
		return err
	}
	defer func() {
		if out, stop := exec.Command(f.program, "down", "--data-dir", f.dir, "--purge").CombinedOutput(); stop != nil {
			err = errors.Join(err, fmt.Errorf("stop the cluster: %w: %s", stop, out))
		}
	}()
	up := []string{
		"up",
		"--data-dir",
		f.dir,
		"--api-port",
		fmt.Sprint(port),
		"--runtime",
		runtime,
		"--nodes",
		"3",
		"--detach",
	}
	if servers > 1 {
		up = append(up, "--control-planes", fmt.Sprint(servers))
	}
	if out, err := exec.Command(f.program, up...).CombinedOutput(); err != nil {
		return fmt.Errorf("start a cluster: %w: %s", err, out)
	}
	if err := f.apply(daemon); err != nil {
		return err
	}
	before, err := f.settled("")
	if err != nil {
		return err
	}
	steps := func() error { return f.play(title(runtime, servers), before) }
	if servers > 1 {
		err = f.answered(steps)
	} else {
		err = steps()
	}
	if err != nil {
		return err
	}
	return f.changes()
}

// step replaces the program of a part of the cluster.
type step struct {
	name, program string
	restart       func() error
}

// steps go forwards, back, and forwards again.
func (f *fleet) steps() (out []step) {
	servers := func(what, program string) {
		for number := range f.servers {
			name := "the server "
			if f.servers > 1 {
				name = fmt.Sprintf("server %d of %d ", number+1, f.servers)
			}
			out = append(out, step{name + what, program, func() error { return f.restartServer(number) }})
		}
	}
	servers("is upgraded", f.new)
	if f.servers == 1 { // of several some answer all the while
		out = append(out, step{"the agents are upgraded while no server answers", f.new, f.restartAgentsAlone})
	} else {
		out = append(out, step{"the agents are upgraded", f.new, f.restartAgents})
	}
	servers("goes one step back", f.old)
	out = append(out, step{"the agents go one step back", f.old, f.restartAgents})
	servers("is upgraded again", f.new)
	return out
}

func (f *fleet) play(title, before string) error {
	for _, step := range f.steps() {
		start := time.Now()
		if err := errors.Join(f.install(step.program), step.restart()); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if _, err := f.settled(before); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("%s: %s: nobody noticed (%.1f s)\n", title, step.name, time.Since(start).Seconds())
	}
	return nil
}

// install puts a program where the cluster's is, in one step, as a package does.
func (f *fleet) install(program string) error {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it is only read
	to, err := os.OpenFile(f.program+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(to, from); err == nil {
		err = to.Close()
	}
	if err != nil {
		return err
	}
	return os.Rename(f.program+".new", f.program)
}

// processes are what the cluster says that runs.
type processes struct {
	Plan struct {
		APIPort int
		Servers []struct{ Name, IP string }
	}
	Server struct{ PID int }
	Others map[string]struct{ PID int }
	Nodes  map[string]struct{ Agent struct{ PID int } }
}

// server is the process of a server, by its number.
func (p processes) server(number int) int {
	if number == 0 {
		return p.Server.PID
	}
	return p.Others[p.Plan.Servers[number].Name].PID
}

func (f *fleet) processes() (p processes, err error) {
	content, err := os.ReadFile(filepath.Join(f.dir, "local.json"))
	if err == nil {
		err = json.Unmarshal(content, &p)
	}
	return p, err
}

// restartServer ends a server; the supervisor starts what is installed now. Of several, the
// next one has to wait until all take part.
func (f *fleet) restartServer(number int) error {
	before, err := f.processes()
	if err != nil {
		return err
	}
	if err := end(before.server(number)); err != nil {
		return err
	}
	if err := wait("another server runs", func() error {
		now, err := f.processes()
		if err == nil && now.server(number) == before.server(number) {
			err = errors.New("it is the same")
		}
		return err
	}); err != nil || f.servers == 1 {
		return err
	}
	return wait("all servers take part", f.takePart)
}

func (f *fleet) restartAgents() error {
	if !f.real {
		return nil // they are part of the server
	}
	before, err := f.processes()
	if err != nil {
		return err
	}
	for name, node := range before.Nodes {
		if err := end(node.Agent.PID); err != nil {
			return err
		}
		err := wait("another agent runs on "+name, func() error {
			now, err := f.processes()
			if err == nil && now.Nodes[name].Agent.PID == node.Agent.PID {
				err = errors.New("it is the same")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// alone is what an agent says that has read what the program of before has left on the disk, and goes by that.
const alone = "The API server does not answer; starting the pods as they were last"

// restartAgentsAlone replaces the agents while the server takes connections and answers nothing.
func (f *fleet) restartAgentsAlone() error {
	if !f.real {
		return nil // they are part of the server
	}
	before, err := f.processes()
	if err != nil {
		return err
	}
	server := before.server(0)
	if server < 2 {
		return fmt.Errorf("the cluster names process %d", server)
	}
	err = syscall.Kill(server, syscall.SIGSTOP)
	if err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	defer func() { _ = syscall.Kill(server, syscall.SIGCONT) }() // if it has ended, that is seen by who asks it next
	said := map[string]int{}
	for name, node := range before.Nodes {
		log, err := f.agentLog(name)
		if err != nil {
			return err
		}
		said[name] = strings.Count(log, alone)
		err = end(node.Agent.PID)
		if err != nil {
			return err
		}
	}
	return wait("the agents go by what they remember", func() error {
		for name := range before.Nodes {
			log, err := f.agentLog(name)
			if err == nil && strings.Count(log, alone) == said[name] {
				err = fmt.Errorf("that of %s does not", name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *fleet) agentLog(node string) (string, error) {
	content, err := os.ReadFile(filepath.Join(f.dir, "nodes", node, "log", "everynode-agent.log"))
	return string(content), err
}

func end(pid int) error {
	if pid < 2 {
		return fmt.Errorf("the cluster names process %d", pid)
	}
	return syscall.Kill(pid, syscall.SIGTERM)
}

// containers tells which containers run, since when, and which revisions there are.
const containers = `{range .items[*]}{.metadata.uid} {.spec.nodeName} {.status.containerStatuses[*].containerID} {.status.containerStatuses[*].state.running.startedAt} {.status.containerStatuses[*].restartCount}{"\n"}{end}`

// settled waits until all is well, as the old kubectl and the new one see it, and
// compares what runs with what ran before.
func (f *fleet) settled(before string) (now string, err error) {
	for _, kubectl := range []string{f.old, f.new} {
		err := wait("every node is ready, and has its daemon", func() error {
			status, err := f.kubectl(
				kubectl, "get", "ds", "agent", "-o",
				"jsonpath={.status.desiredNumberScheduled} {.status.updatedNumberScheduled} {.status.numberAvailable} "+
					"{.metadata.generation} {.status.observedGeneration}",
			)
			if err == nil && status != "3 3 3 1 1" {
				err = fmt.Errorf("the DaemonSet is at %q", status)
			}
			if err != nil {
				return err
			}
			ready, err := f.kubectl(
				kubectl, "get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`,
			)
			if err == nil && ready != "True True True" {
				err = fmt.Errorf("the nodes are ready: %q", ready)
			}
			return err
		})
		if err != nil {
			return "", err
		}
		pods, err := f.kubectl(
			kubectl, "get", "pods", "-l", "app=agent", "--sort-by=.spec.nodeName", "-o", "jsonpath="+containers,
		)
		if err != nil {
			return "", err
		}
		revisions, err := f.kubectl(kubectl, "get", "controllerrevisions", "-o", "jsonpath={.items[*].metadata.uid}")
		if err != nil {
			return "", err
		}
		now = pods + revisions
		if before != "" && now != before {
			return "", fmt.Errorf("what runs has changed from\n%s\nto\n%s", before, now)
		}
		if before == "" {
			before = now
		}
	}
	return now, nil
}

// changes sees that the cluster still does what it is told.
func (f *fleet) changes() error {
	if _, err := f.kubectl(f.new, "set", "env", "ds/agent", "CHANGED=yes"); err != nil {
		return err
	}
	_, err := f.kubectl(f.new, "rollout", "status", "ds/agent", "--timeout=3m")
	return err
}

func (f *fleet) kubectl(program string, args ...string) (string, error) {
	cmd := exec.Command(
		program,
		append([]string{"kubectl", "--kubeconfig", filepath.Join(f.dir, "kubeconfig"), "--request-timeout=30s"}, args...)...,
	)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errOut.String())
	}
	return out.String(), nil
}

func (f *fleet) apply(manifest string) error {
	path := filepath.Join(filepath.Dir(f.program), "daemon.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		return err
	}
	_, err := f.kubectl(f.old, "apply", "-f", path)
	return err
}

func wait(what string, check func() error) (err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: not after %v: %w", what, patience, err)
}

const daemon = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 100%}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - {name: main, image: "everynode.io/demo:v1", args: [sleep]}
`
