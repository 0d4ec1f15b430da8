package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/images"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/network"
	"github.com/everynode/everynode/internal/local/nodeinit"
	"github.com/everynode/everynode/internal/local/process"
)

// How long things on a node may take.
const (
	containerdPatience = 3 * time.Minute // to answer after its start, and to take its images
	agentPatience      = 5 * time.Second // to stop
	podPatience        = 2 * time.Second // for the pods to stop, as on a machine that shuts down
)

// runNode keeps a node running until the context ends: like a machine, it is
// booted again when it went down. booted gets the outcome of each boot.
func (c *cluster) runNode(ctx context.Context, node layout.Node, booted chan<- error) error {
	logger := klog.FromContext(ctx).WithValues("node", node.Name)
	var pause time.Duration
	for {
		begin := time.Now()
		err := c.nodeLife(ctx, node, booted)
		if ctx.Err() != nil {
			return err
		}
		pause = process.NextPause(pause, time.Since(begin))
		logger.Info("Node went down; it is booted again", "reason", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// nodeLife is a node from boot until it goes down, or ctx ends.
func (c *cluster) nodeLife(ctx context.Context, node layout.Node, booted chan<- error) error {
	report := func(err error) {
		select {
		case booted <- err:
		default:
		}
	}
	init, down, err := c.bootNode(ctx, node)
	if err != nil {
		report(err)
		return errors.Join(unlessEnded(ctx, err), network.Disconnect(c.plan, node))
	}
	life, end := context.WithCancel(ctx)
	defer end()
	containerd, agent := c.containerdOf(node, init), c.agentOf(node, init)
	containerdDone, agentDone := make(chan error, 1), make(chan error, 1)
	// The agent stops before the pods, so that it does not start them again, and
	// the pods before containerd.
	containerdLife, endContainerd := context.WithCancel(context.WithoutCancel(ctx))
	defer endContainerd()
	go func() { containerdDone <- containerd.Run(containerdLife) }()
	err = c.loadImages(life, init, node.Name, containerd)
	report(err)
	if err == nil {
		go func() {
			select {
			case <-c.serverReady:
				agentDone <- agent.Run(life)
			case <-life.Done():
				agentDone <- nil
			}
		}()
		select {
		case <-down:
			err = errors.New("its first process ended")
		case <-ctx.Done():
		}
		end()
		if agentErr := <-agentDone; agentErr != nil {
			klog.FromContext(ctx).Error(agentErr, "The agent was not stopped in order", "node", node.Name)
		}
	}
	err = unlessEnded(ctx, err)
	if init.Alive() {
		stopPods(init)
	}
	endContainerd()
	err = errors.Join(err, <-containerdDone)
	return errors.Join(err, c.halt(node, init, down))
}

// unlessEnded drops an error that comes from being told to end.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// halt ends what is left of a node.
func (c *cluster) halt(node layout.Node, init process.Process, down <-chan struct{}) error {
	err := init.Signal(unix.SIGKILL)
	select {
	case <-down:
	case <-time.After(process.KillPatience):
		err = errors.Join(err, fmt.Errorf("the first process of %s does not end", node.Name))
	}
	err = errors.Join(err, network.Disconnect(c.plan, node))
	return errors.Join(err, c.ledger.UpdateNode(node.Name, func(n *layout.NodeState) { *n = layout.NodeState{} }))
}

// bootNode makes a node's namespaces, folders and configuration and starts its
// process 1. down is closed when that has ended.
func (c *cluster) bootNode(ctx context.Context, node layout.Node) (init process.Process, down <-chan struct{},
	err error) {
	if err := network.Connect(c.plan, node); err != nil {
		return process.Process{}, nil, err
	}
	dir := c.plan.NodeDir(node.Name)
	spec := nodeinit.Spec{Name: node.Name, Executable: c.options.Executable, Plugins: c.machine.CNIBin,
		Binds: []nodeinit.Bind{
			{From: filepath.Join(dir, "log"), To: "/var/log"},
			{From: filepath.Join(dir, "lib"), To: "/var/lib"},
			{From: filepath.Join(dir, "cni"), To: "/etc/cni"},
			{From: c.plan.RegistriesDir(), To: nodeinit.Registries, ReadOnly: true},
		}}
	for _, b := range spec.Binds {
		if err := os.MkdirAll(b.From, 0o755); err != nil {
			return process.Process{}, nil, fmt.Errorf("make the folders of %s: %w", node.Name, err)
		}
	}
	init, snapshotter, down, err := c.startInit(ctx, node, spec)
	if err != nil {
		return process.Process{}, nil, fmt.Errorf("boot %s: %w", node.Name, err)
	}
	config := nodeinit.ContainerdConfig(images.Pause, snapshotter)
	path := filepath.Join(dir, "lib", "everynode", filepath.Base(nodeinit.ContainerdConfigFile))
	if err := layout.WriteFile(path, []byte(config), 0o644); err != nil {
		return process.Process{}, nil, errors.Join(err, init.Signal(unix.SIGKILL))
	}
	err = c.ledger.UpdateNode(node.Name, func(n *layout.NodeState) { n.Snapshotter = snapshotter })
	return init, down, err
}

// startInit starts a node's process 1, writes down that it exists, tells it what
// to do, and waits for it to have done so.
func (c *cluster) startInit(ctx context.Context, node layout.Node, spec nodeinit.Spec) (process.Process, string,
	<-chan struct{}, error) {
	none := func(err error) (process.Process, string, <-chan struct{}, error) {
		return process.Process{}, "", nil, err
	}
	cmd, log, err := process.Command{
		Path: c.options.Executable, Name: "everynode", Args: []string{"up", "node-init"},
		Mark: c.plan.Mark(), Log: filepath.Join(c.plan.NodeDir(node.Name), "log", "boot.log"),
	}.Build()
	if err != nil {
		return none(err)
	}
	defer log.Close()
	cmd.Stdout = nil
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	orders, err := cmd.StdinPipe()
	if err != nil {
		return none(err)
	}
	// A pipe of our own: the command's would be closed by Wait, which runs
	// from the beginning to know when the node goes down.
	answers, answersIn, err := os.Pipe()
	if err != nil {
		return none(err)
	}
	defer answers.Close()
	cmd.Stdout = answersIn
	err = startInNetns(cmd, c.plan.NodeNetns(node.Name))
	_ = answersIn.Close()
	if err != nil {
		return none(err)
	}
	init, err := process.Identify(cmd.Process.Pid)
	down := make(chan struct{})
	go func() { _ = cmd.Wait(); close(down) }()
	if err == nil {
		err = c.ledger.UpdateNode(node.Name, func(n *layout.NodeState) { n.Init = init })
	}
	if err == nil {
		err = errors.Join(json.NewEncoder(orders).Encode(spec), orders.Close())
	}
	var report nodeinit.Report
	if err == nil {
		err = readReport(ctx, answers, &report)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		<-down
		return none(err)
	}
	return init, report.Snapshotter, down, nil
}

// readReport reads what process 1 answers; it stops waiting when ctx ends.
func readReport(ctx context.Context, answers *os.File, report *nodeinit.Report) error {
	unblock := context.AfterFunc(ctx, func() { _ = answers.SetReadDeadline(time.Now()) })
	defer unblock()
	// Until the end: that comes when process 1 has become the pause program.
	raw, err := io.ReadAll(answers)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("read the report of its first process: %w", err)
	}
	if err := json.Unmarshal(raw, report); err != nil {
		return fmt.Errorf("its first process ended without a report (see its boot.log): %w", err)
	}
	if report.Error != "" {
		return errors.New(report.Error)
	}
	return nil
}

// startInNetns starts a command in a named network namespace.
func startInNetns(cmd *exec.Cmd, name string) error {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer ns.Close()
	return process.OnOwnThread(func() error {
		if err := unix.Setns(int(ns), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", name, err)
		}
		return cmd.Start()
	})
}

func (c *cluster) containerdOf(node layout.Node, init process.Process) *process.Child {
	return &process.Child{
		Name: "containerd of " + node.Name,
		Start: func() (*exec.Cmd, error) {
			return process.Command{
				Path: c.machine.Containerd, Name: "containerd", Args: []string{"--config", nodeinit.ContainerdConfigFile},
				Mark: c.plan.Mark(), Log: c.plan.ContainerdLog(node.Name),
			}.StartInside(init)
		},
		Note: func(p process.Process) error {
			return c.ledger.UpdateNode(node.Name, func(n *layout.NodeState) { n.Containerd = p })
		},
		Patience: agentPatience,
		Ended:    make(chan error, 1),
	}
}

func (c *cluster) agentOf(node layout.Node, init process.Process) *process.Child {
	return &process.Child{
		Name: "agent of " + node.Name,
		Start: func() (*exec.Cmd, error) {
			return process.Command{
				Path: nodeinit.Executable, Name: "everynode", Args: c.agentArgs(node),
				Mark: c.plan.Mark(), Env: []string{TokenVariable + "=" + c.joinToken()}, Log: c.plan.AgentLog(node.Name),
			}.StartInside(init)
		},
		Note: func(p process.Process) error {
			return c.ledger.UpdateNode(node.Name, func(n *layout.NodeState) { n.Agent = p })
		},
		Patience: agentPatience,
		Ended:    c.agentEnded[node.Name],
	}
}

// TokenVariable is the environment variable from which an agent takes its join
// token. Command lines can be read by every user of a machine.
const TokenVariable = "EVERYNODE_TOKEN"

func (c *cluster) joinToken() string {
	token, _ := c.token.Load().(string)
	return token
}

func (c *cluster) agentArgs(node layout.Node) []string {
	return []string{
		"agent", "--server", c.plan.NodesURL(), "--node-name", node.Name, "--node-ip", node.IP.String(),
		"--data-dir", nodeinit.DataDir, "--runtime-endpoint", "unix://" + nodeinit.ContainerdSocket,
		"--cgroup-root", c.plan.NodeCgroup(node.Name), "--pod-network", c.plan.PodNetwork,
		// The nodes share a machine that is somebody's own: how full it is says nothing about the pods, and an image
		// that came with the cluster could not be had again.
		"--eviction-hard", "none", "--image-gc-high-threshold", "100",
		// Neither may a pod take all process numbers of that machine.
		"--pod-max-pids", "1024",
	}
}

// loadImages waits for the node's containerd and gives it the images that this
// program carries.
func (c *cluster) loadImages(ctx context.Context, init process.Process, node string, containerd *process.Child) error {
	ctx, cancel := context.WithTimeout(ctx, containerdPatience)
	defer cancel()
	socket := socketOf(init)
	for !listens(ctx, socket) {
		select {
		case err := <-containerd.Ended:
			return fmt.Errorf("containerd of %s ended (%w): %s; see %s", node, err,
				process.LastWords(c.plan.ContainerdLog(node)), c.plan.ContainerdLog(node))
		case <-ctx.Done():
			return fmt.Errorf("containerd of %s does not answer: %w; see %s", node, ctx.Err(), c.plan.ContainerdLog(node))
		case <-time.After(20 * time.Millisecond):
		}
	}
	store, err := images.OpenStore(socket, c.ledger.Read().Nodes[node].Snapshotter)
	if err != nil {
		return err
	}
	defer store.Close()
	archive, err := images.Load()
	if err != nil {
		return err
	}
	if err := store.Ensure(ctx, archive); err != nil {
		return fmt.Errorf("give %s its images: %w", node, err)
	}
	return nil
}

// listens reports whether somebody takes connections at the unix socket. That
// its file is there does not say so: it comes a moment before, and stays when
// its process was killed.
func listens(ctx context.Context, socket string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// socketOf is where the host finds the socket of a node's containerd.
func socketOf(init process.Process) string {
	return filepath.Join("/proc", strconv.Itoa(init.PID), "root", nodeinit.ContainerdSocket)
}

// stopPods asks the pods of a node whose agent has stopped to end, and gives
// them a moment. What remains is killed with the node.
func stopPods(init process.Process) {
	pods := process.PodProcesses(init)
	for _, p := range pods {
		_ = p.Signal(unix.SIGTERM)
	}
	deadline := time.Now().Add(podPatience)
	for slices.ContainsFunc(pods, process.Process.Alive) && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
}
