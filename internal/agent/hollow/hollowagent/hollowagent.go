// Package hollowagent runs the agent of a node without a machine.
package hollowagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/entry"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/fetcher"
	"github.com/everynode/everynode/internal/agent/hollow"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/objects"
	"github.com/everynode/everynode/internal/agent/ownaddress"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/probes"
	"github.com/everynode/everynode/internal/agent/referred"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/agent/status"
	"github.com/everynode/everynode/internal/node/peer"
)

// Agent is a node's agent without the machine: it joins, watches, renews its lease, and reports its node and its pods
// by the very code of agents, over connections of its own, but its containers are only noted down. What is not there
// serves the machine: volumes, network, services, the name server and the port for logs. Hundreds of them in one
// process show what a fleet's agents cost a server.
type Agent struct {
	// Config is as for an agent; of it Server, Token, NodeName, NodeIPs, DataDir, Labels, Port and Version are used.
	config.Config
	// Joined is called when the node has its certificate; nil for nobody.
	Joined func()
}

// Run joins the cluster and lives until ctx ends. The error says why it cannot go on; nil after ctx ended.
func (h Agent) Run(ctx context.Context) error {
	cfg, err := h.Complete()
	if err != nil {
		return err
	}
	clk := clock.RealClock{}
	addresses, err := entry.Addresses(ctx, &cfg)
	if err != nil {
		return err
	}
	if err := entry.FindAddress(ctx, cfg.DataDir, addresses); err != nil {
		return entry.UnlessEnded(ctx, err)
	}
	identity, err := join.Join(ctx, join.Config{Server: cfg.Server, Token: cfg.Token, NodeName: cfg.NodeName,
		NodeIPs: addresses.List, DataDir: cfg.DataDir, Clock: clk})
	if err != nil {
		return entry.UnlessEnded(ctx, fmt.Errorf("join the cluster: %w", err))
	}
	if h.Joined != nil {
		h.Joined()
	}
	client, err := entry.NewClient(identity.RESTConfig())
	if err != nil {
		return err
	}
	allNodes, err := network.AllNodes(identity.RESTConfig())
	if err != nil {
		return err
	}
	n := &node{identity: identity, client: client, clock: clk, addresses: addresses,
		sources:     sources.New(client, cfg.NodeName),
		broadcaster: record.NewBroadcaster(record.WithContext(ctx)), references: referred.New(ctx,
			client), statuses: status.New(status.APIWriter{Client: client})}
	defer n.broadcaster.Shutdown()
	recorder := n.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: events.Source, Host: cfg.NodeName})
	n.broadcaster.StartRecordingToSink(events.Sink{
		EventSink: &typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")},
		Context:   ctx,
		Clock:     clk,
	})
	n.reporter, err = nodestatus.New(statusConfig(cfg, n, recorder))
	if err != nil {
		return err
	}
	runtime := hollow.NewRuntime(clk)
	n.fetcher = fetcher.New(ctx, fetcher.Config{
		Pull:        func(context.Context, *corev1.Pod, string, corev1.PullPolicy) error { return nil },
		PullSecrets: objects.Reader{Client: client}.PullSecrets,
		Answered:    func(uid types.UID) { n.pods.ImagesFetched(uid) }, Clock: clk,
	})
	n.pods = pods.New(ctx, podsConfig(cfg, n, runtime, events.Recorder{EventRecorder: recorder}))
	runtime.Changed = n.pods.RuntimeChanged
	return n.run(ctx, runtime, cache.NewReflectorWithOptions(allNodes, &peer.Node{}, hollow.Forgetful{},
		cache.ReflectorOptions{Name: "the networks of all nodes"}))
}

// node is what runs of it.
type node struct {
	identity    *join.Identity
	client      kubernetes.Interface
	clock       clock.WithTicker
	addresses   *ownaddress.Addresses
	sources     *sources.Sources
	broadcaster record.EventBroadcaster
	references  *referred.Cache
	statuses    *status.Manager
	reporter    *nodestatus.Reporter
	fetcher     *fetcher.Fetcher
	pods        *pods.Manager
}

func statusConfig(cfg config.Config, n *node, recorder record.EventRecorder) nodestatus.Config {
	ready := nodestatus.Condition{OK: true}
	return nodestatus.Config{
		NodeName: cfg.NodeName, NodeIPs: n.addresses.List, Labels: cfg.Labels, Taints: cfg.Taints, Client: n.client,
		Recorder: recorder, Node: n.sources.OwnNode, FetchesImages: true,
		KubeletVersion: cfg.Version, KubeletPort: cfg.Port, DataDir: cfg.DataDir, Thresholds: cfg.Rules.Hard,
		Restored: n.identity.Restored, Making: n.identity.Making, Settled: n.identity.Settle,
		ClockSkew: n.identity.ClockSkew,
		Network: func() (nodestatus.Condition, bool) {
			return nodestatus.Condition{OK: true, Reason: "PodNetworkReady",
				Message: "the paths to the pods of other nodes are there"}, true
		},
		Runtime: func(context.Context) (nodestatus.Runtime, error) {
			return nodestatus.Runtime{Name: "hollow", Version: cfg.Version, Ready: ready, NetworkReady: ready}, nil
		},
	}
}

func podsConfig(cfg config.Config, n *node, runtime *hollow.Runtime, ev events.Recorder) pods.Config {
	objs := objects.Reader{
		Cache: n.references, Client: n.client, ServiceLister: n.sources.ServiceLister(),
		ServicesRead: n.sources.Services.HasSynced,
		NoSecrets:    true, Allocatable: n.reporter.NodeAllocatable, NodeName: cfg.NodeName, NodeObject: n.sources.OwnNode,
		VolumeFile: noFile,
	}
	return pods.Config{
		Runtime: runtime, Devices: hollow.NoDevices{}, Claims: hollow.NoClaims{}, Images: hollow.AllImages{},
		Volumes: hollow.ReadVolumes{Reader: objs}, Statuses: n.statuses, Events: ev,
		Env:        objs.Environment(n.addresses.Texts),
		References: n.references, Fetcher: n.fetcher, Clock: n.clock, HostIPs: n.addresses.Texts, Node: n.sources.OwnNode,
		Prober: pods.Probes{Manager: probes.New(probes.Config{
			Exec: runtime.ExecSync, OnEvent: ev.Container, Version: cfg.Version, Clock: n.clock,
			OnChange: func(uid types.UID) { n.pods.ProbeChanged(uid) },
		})},
	}
}

// run runs all parts until ctx ends.
func (n *node) run(ctx context.Context, runtime *hollow.Runtime, peers *cache.Reflector) error {
	handled, err := n.sources.Feed(n.pods)
	if err != nil {
		return fmt.Errorf("watch the node's pods: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	for what, run := range map[string]func(context.Context) error{"keep the node's certificates": n.identity.Run,
		"report the node": n.reporter.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	for _, run := range []func(context.Context){
		func(ctx context.Context) { entry.FollowServers(ctx, n.clock, n.identity, n.sources) },
		n.statuses.Run, peers.RunWithContext, n.pods.Wait,
		n.fetcher.Wait,
		func(ctx context.Context) { runtime.Watch(ctx, n.pods) },
		func(ctx context.Context) { n.sources.Run(ctx, handled, n.pods.APIListed) },
	} {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// noFile says that containers that do not run write no files.
func noFile(_ *corev1.Pod, volume, path string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: volume + "/" + path, Err: fs.ErrNotExist}
}
