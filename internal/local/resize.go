package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/progress"
)

// fleet is the nodes of a cluster while they run.
type fleet struct {
	cluster *cluster
	group   sync.WaitGroup
	stops   map[string]func()
}

// start keeps a node running until ctx ends, and returns where the outcome of
// its first boot goes.
func (f *fleet) start(ctx context.Context, node layout.Node) <-chan error {
	booted, stopped := make(chan error, 1), make(chan struct{})
	life, end := context.WithCancel(ctx)
	f.stops[node.Name] = func() {
		end()
		<-stopped
	}
	f.group.Go(func() {
		defer close(stopped)
		defer end()
		if err := f.cluster.runNode(life, node, booted); err != nil {
			klog.FromContext(ctx).Error(err, "The node was not stopped in order", "node", node.Name)
		}
	})
	return booted
}

// stop stops a node and waits until nothing of it runs.
func (f *fleet) stop(name string) {
	if stop := f.stops[name]; stop != nil {
		stop()
		delete(f.stops, name)
	}
}

// wantedFile is how another process tells the supervisor, before a SIGUSR1, how
// many nodes there are to be.
func wantedFile(dataDir string) string { return filepath.Join(dataDir, "nodes.wanted") }

// resize gives the cluster the number of nodes that somebody asked for.
func (c *cluster) resize(ctx context.Context, nodes *fleet) error {
	raw, err := os.ReadFile(wantedFile(c.plan.DataDir))
	if err != nil {
		return fmt.Errorf("read how many nodes are wanted: %w", err)
	}
	o := c.options
	o.Nodes, err = strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return fmt.Errorf("read how many nodes are wanted: %w", err)
	}
	if err := errors.Join(o.Validate(), o.ValidateFor(c.plan.Runtime)); err != nil {
		return err
	}
	if err := c.makeToken(ctx); err != nil {
		return err
	}
	before, after := c.ledger.Read().Plan, layout.New(o, c.plan.Runtime, c.plan.Subnet)
	// Written down first, so that what is made now is known after a crash.
	err = c.ledger.Update(func(s *layout.State) {
		s.Plan = after
		for _, n := range after.Nodes {
			if _, known := s.Nodes[n.Name]; !known {
				s.Nodes[n.Name] = layout.NodeState{}
			}
		}
	})
	if err != nil {
		return err
	}
	for _, name := range goneNodes(before, after) {
		nodes.stop(name)
		err := errors.Join(
			os.RemoveAll(c.plan.NodeDir(name)), c.ledger.Update(func(s *layout.State) { delete(s.Nodes, name) }))
		if err != nil {
			return fmt.Errorf("remove node %s: %w", name, err)
		}
	}
	for _, node := range after.Nodes {
		if nodes.stops[node.Name] == nil {
			nodes.start(ctx, node)
		}
	}
	return nil
}

// leaseLife is how long a sign of life of a node counts.
const leaseLife = 40 * time.Second

// askResize has the supervisor of a running cluster change the number of nodes,
// and waits until they are ready.
func askResize(ctx context.Context, o layout.Options, s *layout.State, report progress.Report) error {
	switch {
	case s.Plan.Runtime == layout.RuntimeSimulated:
		return errors.New("the number of simulated nodes changes with a restart; run everynode down first")
	case os.Geteuid() != 0:
		return errors.New("the nodes belong to root; run it with sudo")
	}
	o.ControlPlanes = s.Plan.ControlPlanes()
	if err := o.ValidateFor(s.Plan.Runtime); err != nil {
		return err
	}
	after := layout.New(layout.Options{DataDir: o.DataDir, Nodes: o.Nodes, ControlPlanes: o.ControlPlanes,
		APIPort: s.Plan.APIPort, PodNetwork: s.Plan.PodNetwork}, s.Plan.Runtime, s.Plan.Subnet)
	if err := layout.WriteFile(wantedFile(o.DataDir), []byte(strconv.Itoa(o.Nodes)+"\n"), 0o600); err != nil {
		return err
	}
	if err := s.Supervisor.Signal(unix.SIGUSR1); err != nil {
		return err
	}
	asker := &cluster{plan: after, gone: goneNodes(s.Plan, after), begun: time.Now().Add(-leaseLife)}
	var table string
	err := report.Step("nodes", func() (string, error) {
		if err := waitStopped(ctx, o.DataDir, asker.gone); err != nil {
			return "", err
		}
		nodes, err := asker.waitNodes(ctx)
		table = nodesTable(nodes)
		return fmt.Sprintf("%d before, %d ready now", s.Plan.NodeCount(), len(nodes)), err
	})
	if err != nil {
		return err
	}
	report(progress.Event{Kind: progress.Ready, Text: usage(after, o, table)})
	return nil
}

// waitStopped waits until the supervisor has stopped nodes. Before that, their
// agents would register them again.
func waitStopped(ctx context.Context, dataDir string, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	for {
		s, err := layout.Load(dataDir)
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			_, there := s.Nodes[name]
			return !there
		})
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nodes %s were not stopped: %w; see %s", strings.Join(left, ", "), ctx.Err(),
				SupervisorLog(dataDir))
		case <-time.After(askEvery):
		}
	}
}
