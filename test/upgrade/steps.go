package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/test/upgrade/nodes"
)

// playSteps replaces the program of clusters of one server and of three, and takes the step back. Nobody's container
// may notice: none is started again, no rollout begins, and kubectl, the old one and the new one, works after each
// step.
func playSteps(p programs) error {
	runtimes := []string{"simulated"}
	if os.Geteuid() == 0 {
		runtimes = append(runtimes, "containerd")
	}
	for _, runtime := range runtimes {
		for _, servers := range []int{1, 3} {
			s := size{runtime, servers, 3}
			if err := with(p, p.old, s, func(f *fleet) error { return f.step(s) }); err != nil {
				return fmt.Errorf("upgrade of %s: %w", s, err)
			}
		}
	}
	return nil
}

func (s size) String() string {
	if s.servers == 1 {
		return "one server, " + s.runtime + " nodes"
	}
	return fmt.Sprintf("%d servers, %s nodes", s.servers, s.runtime)
}

func (f *fleet) step(s size) error {
	if err := f.apply(daemon); err != nil {
		return err
	}
	before, err := f.settled("")
	if err != nil {
		return err
	}
	steps := func() error { return f.play(s.String(), before) }
	if s.servers > 1 {
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

func (f *fleet) restartAgents() error {
	if !f.real {
		return nil // they are part of the server
	}
	before, err := f.processes()
	if err != nil {
		return err
	}
	for name, node := range before.Nodes {
		if err := end(node.Agent.PID, syscall.SIGTERM); err != nil {
			return err
		}
		err := wait("another agent runs on "+name, func() error {
			now, err := f.processes()
			if err != nil {
				return err
			}
			if now.Nodes[name].Agent.PID == node.Agent.PID {
				return errors.New("it is the same")
			}
			return nodes.Runs(now.Nodes[name].Agent.PID, f.program)
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
		err = end(node.Agent.PID, syscall.SIGTERM)
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
		now, err := f.processes()
		for _, node := range now.Nodes {
			err = errors.Join(err, nodes.Runs(node.Agent.PID, f.program))
		}
		return err
	})
}

func (f *fleet) agentLog(node string) (string, error) {
	content, err := os.ReadFile(filepath.Join(f.dir, "nodes", node, "log", "everynode-agent.log"))
	return string(content), err
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
