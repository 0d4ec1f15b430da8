// Command density measures one node that runs many pods: how long they take to start, and what the node's agent uses while nothing
// happens. It starts a cluster of one real node with the program in bin/, and so needs root and containerd.
//
//	go run ./test/density [--pods 100] [--settle 3m] [--idle 3m] [--binary bin/everynode]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long pods may take. Only a failure takes that long.
const patience = 10 * time.Minute

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: pod-%03d, labels: {app: density}}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: everynode.io/demo:v1
      args: [http]
      readinessProbe: {httpGet: {path: /ready, port: 8080}}
      resources: {requests: {cpu: 1m, memory: 1Mi}}
---
`

func main() {
	pods := flag.Int("pods", 100, "how many pods")
	settle := flag.Duration("settle", 3*time.Minute, "how long to wait before that, for the agent gives memory back every two minutes")
	idle := flag.Duration("idle", 3*time.Minute, "how long to watch the agent while nothing happens")
	binary := flag.String("binary", "bin/everynode", "the program to measure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, *binary, *pods, *settle, *idle); err != nil {
		fmt.Fprintln(os.Stderr, "density:", err)
		os.Exit(1)
	}
}

// cluster is a running cluster of one node.
type cluster struct{ binary, dir string }

func measure(ctx context.Context, binary string, pods int, settle, idle time.Duration) (err error) {
	binary, err = filepath.Abs(binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "everynode-density-")
	if err != nil {
		return err
	}
	c := cluster{binary: binary, dir: filepath.Join(dir, "data")}
	defer func() {
		// Also when the measurement was interrupted.
		out, downErr := exec.Command(binary, "down", "--data-dir", c.dir, "--purge").CombinedOutput()
		if downErr != nil {
			downErr = fmt.Errorf("stop the cluster: %w\n%s", downErr, out)
		}
		err = errors.Join(err, downErr, os.RemoveAll(dir))
	}()
	port, err := freePort()
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, binary, "up", "--data-dir", c.dir, "--nodes", "1", "--api-port", port, "--runtime", "containerd", "--detach").CombinedOutput(); err != nil {
		return fmt.Errorf("start a cluster: %w\n%s", err, out)
	}
	took, err := c.start(ctx, pods)
	if err != nil {
		return err
	}
	pid, err := c.agent()
	if err != nil {
		return err
	}
	if _, _, err := watch(ctx, pid, settle); err != nil {
		return err
	}
	largest, spent, err := watch(ctx, pid, idle)
	if err != nil {
		return err
	}
	fmt.Printf("| pods | start, s | agent's memory, MB | of that its own | its share | agent's CPU when idle |\n|---:|---:|---:|---:|---:|---:|\n")
	fmt.Printf("| %d | %.1f | %d | %d | %d | %.2f %% of a core |\n", pods, took.Seconds(),
		largest.resident>>20, largest.anonymous>>20, largest.share>>20, 100*spent.Seconds()/idle.Seconds())
	return nil
}

// watch looks at a process for a while: the most memory of each kind that it had, and the processor time that it spent.
func watch(ctx context.Context, pid int, duration time.Duration) (largest memory, spent time.Duration, err error) {
	before, err := processorTime(pid)
	if err != nil {
		return memory{}, 0, err
	}
	const interval = 5 * time.Second
	for end := time.Now().Add(duration); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return memory{}, 0, ctx.Err()
		case <-time.After(min(interval, time.Until(end))):
		}
		now, err := memoryOf(pid)
		if err != nil {
			return memory{}, 0, err
		}
		largest = memory{max(largest.resident, now.resident), max(largest.anonymous, now.anonymous), max(largest.share, now.share)}
	}
	after, err := processorTime(pid)
	return largest, after - before, err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// kubectl runs kubectl; in is its input.
func (c cluster) kubectl(ctx context.Context, in string, args ...string) error {
	cmd := exec.CommandContext(ctx, c.binary, append([]string{"kubectl", "--data-dir", c.dir}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// start creates the pods and waits until all are ready.
func (c cluster) start(ctx context.Context, pods int) (time.Duration, error) {
	var all strings.Builder
	for i := range pods {
		fmt.Fprintf(&all, manifest, i)
	}
	begin := time.Now()
	if err := c.kubectl(ctx, all.String(), "apply", "-f", "-"); err != nil {
		return 0, err
	}
	err := c.kubectl(ctx, "", "wait", "pods", "-l", "app=density", "--for=condition=Ready", "--timeout="+patience.String())
	return time.Since(begin), err
}

// agent is the process of the node's agent.
func (c cluster) agent() (int, error) {
	data, err := os.ReadFile(filepath.Join(c.dir, "local.json"))
	if err != nil {
		return 0, err
	}
	var state struct {
		Nodes map[string]struct{ Agent struct{ PID int } }
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return 0, err
	}
	return state.Nodes["node-1"].Agent.PID, nil
}

// processorTime is what the process spent, for itself and for the kernel's work for it.
func processorTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat of process %d is %q", pid, data)
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err, err2)
}

// memory is what a process has, in bytes: what is resident, as ps shows it; what of that is no part of a file; and its share,
// in which what several processes have is divided among them.
type memory struct{ resident, anonymous, share int64 }

func memoryOf(pid int) (memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	field := func(name string) int64 {
		_, rest, _ := strings.Cut(string(data), "\n"+name+":")
		var kb int64
		_, _ = fmt.Sscan(rest, &kb)
		return kb << 10
	}
	return memory{resident: field("Rss"), anonymous: field("Anonymous"), share: field("Pss")}, nil
}
