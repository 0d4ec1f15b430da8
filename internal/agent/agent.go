package agent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/credentialprovider"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/csi"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/ownaddress"
	"github.com/everynode/everynode/internal/agent/shutdown"
)

// connectPatience is how long the agent waits for a runtime that does not answer, connectRetry after how long it tries
// again.
const (
	connectPatience = 10 * time.Second
	connectRetry    = time.Second
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

// Run joins the cluster and runs the node's pods until ctx ends. Containers run on when it returns. The error says why
// the node cannot go on; nil after ctx ended.
func (a *Agent) Run(ctx context.Context) error {
	var err error
	a.addresses, err = nodeAddresses(ctx, &a.cfg)
	if err != nil {
		return err
	}
	if err := findAddress(ctx, a.cfg.DataDir, a.addresses); err != nil {
		return unlessEnded(ctx, err)
	}
	identity, err := join.Join(ctx, join.Config{
		Server: a.cfg.Server, Token: a.cfg.Token, NodeName: a.cfg.NodeName, NodeIPs: a.addresses.List, DataDir: a.cfg.DataDir,
		Clock:         a.clk,
		TrustInterval: a.cfg.TrustInterval,
	})
	if err != nil {
		return unlessEnded(ctx, fmt.Errorf("join the cluster: %w", err))
	}
	if err := csi.Share(a.cfg.KubeletDir); err != nil {
		return err
	}
	services, err := a.connect(ctx)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer services.Close(context.WithoutCancel(ctx))
	if err := a.layCgroups(ctx, services.Runtime); err != nil {
		return unlessEnded(ctx, err)
	}
	client, err := newClient(identity.RESTConfig())
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
		Announce: n.reporter.ShutDown, Reported: n.statuses.Reported}
}

// unlessEnded drops an error that comes from being told to end.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// connect waits a while for the runtime, which may start at the same time.
func (a *Agent) connect(ctx context.Context) (cri.Services, error) {
	for deadline := a.clk.Now().Add(connectPatience); ; {
		services, err := cri.Connect(ctx, a.cfg.RuntimeEndpoint)
		if err == nil {
			return services, nil
		}
		if !a.clk.Now().Before(deadline) {
			return cri.Services{}, fmt.Errorf("%w; start the container runtime, or name its socket with --runtime-endpoint", err)
		}
		select {
		case <-ctx.Done():
			return cri.Services{}, err
		case <-a.clk.After(connectRetry):
		}
	}
}

// newClient returns a client that nothing but the API server slows down.
func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "everynode-agent"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}
