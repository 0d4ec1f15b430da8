package agent

import (
	"cmp"
	"context"
	"fmt"

	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/clusternet"
	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/credentialprovider"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/csi"
	"github.com/everynode/everynode/internal/agent/entry"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/ownaddress"
	"github.com/everynode/everynode/internal/agent/reserve"
	"github.com/everynode/everynode/internal/agent/shutdown"
)

// Agent is one node of a cluster.
type Agent struct {
	cfg config.Config
	clk clock.WithTicker
	// programs say with which credentials images are pulled; nil for none.
	programs *credentialprovider.Programs
	// cgroups are there once the runtime has told who makes them.
	cgroups *cgroups.Cgroups
	// addresses are the node's, from Run on.
	addresses *ownaddress.Addresses
}

// New checks the configuration; Run does the rest.
func New(cfg config.Config) (*Agent, error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	if err := cfg.CheckMachine("/"); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, clk: clock.RealClock{}}
	if cfg.ProviderConfig != "" || cfg.ProviderDir != "" {
		a.programs, err = credentialprovider.Load(cfg.ProviderConfig, cfg.ProviderDir, a.clk)
		if err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Withdraw takes back what earlier runs of the agent made on this machine and what its configuration now leaves to
// somebody else; see clusternet.
func (a *Agent) Withdraw(ctx context.Context) error { return clusternet.Withdraw(ctx, &a.cfg) }

// Run joins the cluster and runs the node's pods until ctx ends. Containers run on when it returns. The error says why
// the node cannot go on; nil after ctx ended.
func (a *Agent) Run(ctx context.Context) error {
	var err error
	a.addresses, err = entry.Addresses(ctx, &a.cfg)
	if err != nil {
		return err
	}
	if err := entry.FindAddress(ctx, a.cfg.DataDir, a.addresses); err != nil {
		return entry.UnlessEnded(ctx, err)
	}
	identity, err := join.Join(ctx, join.Config{
		Server: a.cfg.Server, Token: a.cfg.Token, NodeName: a.cfg.NodeName, NodeIPs: a.addresses.List, DataDir: a.cfg.DataDir,
		Clock:         a.clk,
		TrustInterval: a.cfg.TrustInterval,
	})
	if err != nil {
		return entry.UnlessEnded(ctx, fmt.Errorf("join the cluster: %w", err))
	}
	if err := csi.Share(a.cfg.KubeletDir); err != nil {
		return err
	}
	services, err := entry.Connect(ctx, a.cfg.RuntimeEndpoint, a.clk)
	if err != nil {
		return entry.UnlessEnded(ctx, err)
	}
	defer services.Close(context.WithoutCancel(ctx))
	if err := a.layCgroups(ctx, services.Runtime); err != nil {
		return entry.UnlessEnded(ctx, err)
	}
	client, err := entry.NewClient(identity.RESTConfig())
	if err != nil {
		return err
	}
	// A node that shuts down in order lives on for a while after it was told to end.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	n, err := a.assemble(life, services, client, identity)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		if a.cfg.ShutdownGrace > 0 && shutdown.MachineStops(life) {
			a.newShutdown(n).Run(life)
		}
		end(nil)
	})
	defer stop()
	return n.run(life, end)
}

func (a *Agent) newShutdown(n *node) *shutdown.Shutdown {
	return &shutdown.Shutdown{Grace: a.cfg.ShutdownGrace, Critical: a.cfg.ShutdownGraceCritical, Pods: n.pods,
		Clock:    a.clk,
		Announce: n.reporter.ShutDown,
		Reported: func() bool { return n.reporter.ShutDownIsKnown() && n.statuses.Reported() }}
}

// layCgroups finds out who makes cgroups on this machine, and makes those of all pods. Its error says why no pod could
// start.
func (a *Agent) layCgroups(ctx context.Context, service internalapi.RuntimeService) error {
	told, err := cri.CgroupDriver(ctx, service)
	if err != nil {
		return err
	}
	a.cfg.CgroupDriver, err = reserve.ChooseDriver(cgroups.Driver(a.cfg.CgroupDriver), told)
	if err != nil {
		return err
	}
	a.cgroups, err = cgroups.New(cgroups.Config{
		Driver: cgroups.Driver(a.cfg.CgroupDriver), Root: a.cfg.CgroupRoot, Node: a.cfg.NodeName, PodPIDs: a.cfg.PodPIDs,
	})
	if err != nil {
		return err
	}
	a.cfg.CgroupRoot = cmp.Or(a.cfg.CgroupRoot, a.cgroups.Root())
	return a.cgroups.Prepare()
}
