package local

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/examples"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/network"
	"github.com/everynode/everynode/internal/local/nodeinit"
	"github.com/everynode/everynode/internal/local/process"
	"github.com/everynode/everynode/internal/local/progress"
	"github.com/everynode/everynode/internal/local/remains"
)

// cluster is a cluster while this process supervises it.
type cluster struct {
	options layout.Options
	machine machine.Machine
	plan    layout.Plan
	// gone are nodes that the cluster had when it ran last.
	gone   []string
	report progress.Report
	ledger *layout.Ledger
	begun  time.Time

	// serverReady is closed when the API answers and token is set.
	serverReady chan struct{}
	token       atomic.Value // string; a new one when nodes are added
	agentEnded  map[string]chan error
}

// run makes the cluster, reports when it is ready, and keeps it until the
// context ends. It returns early if the cluster does not become ready. All
// processes that it started have ended when it returns.
func (c *cluster) run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	if c.plan.Runtime == layout.RuntimeContainerd {
		if err := c.report.Step("network", func() (string, error) { return c.makeNetwork(ctx) }); err != nil {
			return err
		}
	}
	logger := klog.FromContext(ctx)
	resize := make(chan os.Signal, 1)
	signal.Notify(resize, unix.SIGUSR1)
	defer signal.Stop(resize)
	serverLife, endServer := context.WithCancel(context.WithoutCancel(ctx))
	nodesLife, endNodes := context.WithCancel(ctx)
	nodes := &fleet{cluster: c, stops: map[string]func(){}}
	servers := newServers(c)
	defer func() {
		// Nodes go first: their agents still tell the API.
		endNodes()
		nodes.group.Wait()
		endServer()
		servers.group.Wait()
	}()
	if err := servers.begin(serverLife); err != nil {
		return err
	}
	go boundLogs(serverLife, c.plan.DataDir)
	booted := make([]<-chan error, len(c.plan.Nodes))
	for i, node := range c.plan.Nodes {
		booted[i] = nodes.start(nodesLife, node)
	}
	openDoor := func(ctx context.Context) (string, error) { return c.openDoor(ctx, serverLife, servers) }
	if err := c.becomeReady(ctx, openDoor, booted); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-resize:
			if err := c.resize(nodesLife, nodes); err != nil {
				logger.Error(err, "The number of nodes was not changed")
			}
		}
	}
}

// begin writes down that this process makes the cluster, before it makes anything.
func (c *cluster) begin() error {
	boot, err := process.BootID()
	if err != nil {
		return err
	}
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return err
	}
	c.ledger = &layout.Ledger{State: layout.State{
		Version: layout.StateVersion, Phase: layout.PhaseStarting, Plan: c.plan, BootID: boot, Supervisor: self,
		Nodes: map[string]layout.NodeState{},
	}}
	c.begun = time.Now()
	c.serverReady = make(chan struct{})
	c.agentEnded = map[string]chan error{}
	for _, n := range c.plan.Nodes {
		c.agentEnded[n.Name] = make(chan error, 1)
		c.ledger.State.Nodes[n.Name] = layout.NodeState{}
	}
	for _, name := range c.gone {
		if err := os.RemoveAll(c.plan.NodeDir(name)); err != nil {
			return fmt.Errorf("remove the files of %s, which the cluster has no more: %w", name, err)
		}
	}
	if err := c.ledger.Update(func(*layout.State) {}); err != nil {
		return err
	}
	return writeExamples(c.plan.ExamplesDir())
}

// writeExamples puts the example manifests where users can apply them.
func writeExamples(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the examples: %w", err)
	}
	names, err := fs.Glob(examples.Files, "*")
	if err != nil {
		return fmt.Errorf("write the examples: %w", err)
	}
	for _, name := range names {
		content, err := examples.Files.ReadFile(name)
		if err != nil {
			return fmt.Errorf("write the examples: %w", err)
		}
		if err := os.WriteFile(dir+"/"+name, content, 0o644); err != nil {
			return fmt.Errorf("write the examples: %w", err)
		}
	}
	return nil
}

// makeNetwork makes what the nodes' network namespaces are plugged into.
func (c *cluster) makeNetwork(ctx context.Context) (string, error) {
	release, err := machine.Lock(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	for _, dir := range []string{network.NetnsDir, "/etc/cni", filepath.Dir(nodeinit.CNIBin), nodeinit.CNIBin} {
		if err := machine.MakeDir(dir); err != nil {
			return "", err
		}
	}
	if err := network.MakeSwitch(c.plan); err != nil {
		return "", err
	}
	for _, server := range c.plan.Servers {
		if err := network.Connect(c.plan, server); err != nil {
			return "", err
		}
	}
	text := fmt.Sprintf("%s, this machine is %s", c.plan.Subnet, c.plan.Gateway)
	return text, network.OpenOutside(ctx, c.plan, c.machine.Nft)
}

// serverChild is the process of a control plane that is alone; ended gets why it has
// ended by itself.
func (c *cluster) serverChild(ended chan error) *process.Child {
	args := c.serverArgs(c.plan.DataDir, c.plan.GateAddresses()...)
	return &process.Child{
		Name: "server",
		Start: func() (*exec.Cmd, error) {
			return process.Command{Path: c.options.Executable, Name: "everynode", Args: args, Mark: c.plan.Mark(),
				Log: c.plan.ServerLog()}.Start()
		},
		Note: func(p process.Process) error {
			return c.ledger.Update(func(s *layout.State) { s.Server = p })
		},
		Patience: remains.ServerPatience,
		Ended:    ended,
	}
}

// serverArgs is what each server is told.
func (c *cluster) serverArgs(dataDir string, listen ...string) []string {
	args := []string{"server", "--data-dir", dataDir}
	for _, address := range listen {
		args = append(args, "--listen", address)
	}
	if c.plan.Simulate > 0 {
		args = append(args, "--simulated-nodes", strconv.Itoa(c.plan.Simulate))
	}
	return append(args, c.options.ServerFlags...)
}

// becomeReady waits for the control plane and for the nodes, and reports each.
func (c *cluster) becomeReady(ctx context.Context, openDoor func(context.Context) (string, error),
	booted []<-chan error) error {
	group, waiting := errgroup.WithContext(ctx)
	group.Go(func() error {
		return c.report.Step("control plane", func() (string, error) { return openDoor(waiting) })
	})
	for i, node := range c.plan.Nodes {
		group.Go(func() error {
			return c.report.Step(node.Name, func() (string, error) {
				select {
				case err := <-booted[i]:
					return fmt.Sprintf("%s, containerd %s, images imported", node.IP, c.machine.ContainerdVersion), err
				case <-waiting.Done():
					return "", waiting.Err()
				}
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var table string
	err := c.report.Step("nodes", func() (string, error) {
		nodes, err := c.waitNodes(ctx)
		if err != nil {
			return "", err
		}
		table = nodesTable(nodes)
		if c.plan.PodNetwork == layout.ForeignPodNetwork {
			return fmt.Sprintf("%d of %d joined, to be ready with a network daemon", len(nodes), c.plan.NodeCount()), nil
		}
		return fmt.Sprintf("%d of %d ready", len(nodes), c.plan.NodeCount()), nil
	})
	if err != nil {
		return err
	}
	if err := c.ledger.Update(func(s *layout.State) { s.Phase = layout.PhaseReady }); err != nil {
		return err
	}
	c.report(progress.Event{Kind: progress.Ready, Text: usage(c.plan, c.options, table)})
	debug.FreeOSMemory() // what the start needed, images above all, is not needed any more
	return nil
}

// openDoor waits for the servers, which run until their life ends, and gets the token with
// which nodes join.
func (c *cluster) openDoor(ctx, life context.Context, servers *servers) (string, error) {
	ready, err := servers.becomeReady(ctx, life, c.report)
	if err != nil {
		return "", err
	}
	if len(c.plan.Nodes) > 0 {
		if err := c.makeToken(ctx); err != nil {
			return "", err
		}
	}
	close(c.serverReady)
	if all := c.plan.ControlPlanes(); all > 1 {
		return fmt.Sprintf("%s, %d of %d servers ready", c.plan.LocalURL(), ready, all), nil
	}
	return c.plan.LocalURL(), nil
}

// makeToken gets a token with which nodes can join from now on for a while.
func (c *cluster) makeToken(ctx context.Context) error {
	token, err := c.createToken(ctx)
	if err == nil {
		c.token.Store(token)
	}
	return err
}

// createToken makes a join token as a user would.
func (c *cluster) createToken(ctx context.Context, flags ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.options.Executable,
		append([]string{"token", "create", "--data-dir", c.plan.DataDir}, flags...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("create a join token: %w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// cleanUp removes what the cluster still has on the machine and writes down
// that it has stopped. It is not hurried by the end of the context.
func (c *cluster) cleanUp() error {
	if c.ledger == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if err := c.ledger.Update(func(s *layout.State) { s.Phase = layout.PhaseStopping }); err != nil {
		return err
	}
	if _, err := remains.Remove(ctx, c.ledger.Read()); err != nil {
		return err
	}
	return c.ledger.Update(func(s *layout.State) { s.Stopped() })
}
