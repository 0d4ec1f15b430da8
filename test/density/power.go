package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// switchOffAndOn stops the control plane, so that it takes connections and says nothing, ends all processes of the node
// at once, and measures how long the node takes to have as many pods again as it had. In the end the control plane goes
// on, and all pods must be ready.
func (c cluster) switchOffAndOn(ctx context.Context, pods int) error {
	// What a node remembers is written within ten seconds.
	const remembered = 15 * time.Second
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(remembered):
	}
	before, err := c.processes()
	if err != nil {
		return err
	}
	if err := syscall.Kill(before.Server.PID, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop the control plane: %w", err)
	}
	goOn := func() error { return syscall.Kill(before.Server.PID, syscall.SIGCONT) }
	times, err := c.cutPower(ctx, before, pods)
	if err := errors.Join(err, goOn()); err != nil {
		return err
	}
	fmt.Printf(
		"\n%d pods, switched off and on without a control plane, after the power cut: containerd started at %.1f s, the "+
			"agent at %.1f s, the first container at %.1f s, half of them at %.1f s, all at %.1f s.\n",
		pods, times.containerd.Seconds(), times.agent.Seconds(), times.first.Seconds(), times.half.Seconds(),
		times.all.Seconds(),
	)
	began := time.Now()
	if err := c.allReady(ctx); err != nil {
		return fmt.Errorf("after the control plane went on: %w", err)
	}
	fmt.Printf("The API showed all as ready %.1f s after the control plane went on.\n", time.Since(began).Seconds())
	return nil
}

// milestones are how long after the power cut something was seen first.
type milestones struct{ containerd, agent, first, half, all time.Duration }

// cutPower ends the node, which is started again, and looks until its pods run.
func (c cluster) cutPower(ctx context.Context, before running, pods int) (m milestones, err error) {
	was := before.Nodes[node]
	began := time.Now()
	if err := syscall.Kill(was.Init.PID, syscall.SIGKILL); err != nil {
		return m, fmt.Errorf("end the node: %w", err)
	}
	seen := func(at *time.Duration, is bool) {
		if is && *at == 0 {
			*at = time.Since(began)
		}
	}
	for deadline := began.Add(patience); m.all == 0; {
		if time.Now().After(deadline) {
			return m, fmt.Errorf("after %v not all pods run: %+v", patience, m)
		}
		select {
		case <-ctx.Done():
			return m, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		now, err := c.processes()
		if err != nil {
			return m, err
		}
		is := now.Nodes[node]
		if is.Init == was.Init {
			continue // what still dies does not count
		}
		seen(&m.containerd, is.Containerd.PID != 0 && is.Containerd != was.Containerd)
		seen(&m.agent, is.Agent.PID != 0 && is.Agent != was.Agent)
		count, err := daemons(before.Plan.ID)
		if err != nil {
			return m, err
		}
		seen(&m.first, count > 0)
		seen(&m.half, count >= (pods+1)/2)
		seen(&m.all, count >= pods)
	}
	return m, nil
}

// daemons counts the pods' programs that run in a cluster.
func daemons(cluster string) (count int, err error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range folders {
		// Processes end while one looks.
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		if bytes.HasSuffix(args, []byte("\x00http\x00")) &&
			bytes.Contains(groups, []byte("/"+cluster+"/"+node+"/kubepods/")) {
			count++
		}
	}
	return count, nil
}
