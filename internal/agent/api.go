package agent

import (
	"context"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/agent/callers"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/lookup"
	"github.com/everynode/everynode/internal/agent/measure"
	"github.com/everynode/everynode/internal/agent/scrape"
	"github.com/everynode/everynode/internal/agent/streaming"
)

// newServer opens the port at which the API server, and agents for monitoring, call the node: at all of its addresses,
// as they look for it at any.
func (a *Agent) newServer(n *node, client kubernetes.Interface, identity *join.Identity) (*streaming.Server, error) {
	guard := callers.New(callers.Config{NodeName: a.cfg.NodeName, Client: client, ClientCAs: identity.CAPool,
		Now: identity.Now})
	return streaming.Listen(streaming.Config{
		Address:     net.JoinHostPort("", strconv.Itoa(int(a.cfg.Port))),
		Certificate: identity.ServingCertificate, ClientCAs: identity.CAPool, Protect: guard.Protect,
		Lookup:  lookup.Lookup{Sources: n.sources, Runtime: n.runtime, Static: n.pods.StaticNamed},
		Runtime: lookup.Streams{Runtime: n.runtime},
		Pods:    n.sources.AllPods, Summary: a.newSummary(n).Summary, Pages: n.scraped.Handlers(), Images: n.keepers.Stock,
		Configz: a.cfg.Configz(),
	})
}

// newSummary makes what says how much the node and its pods use.
func (a *Agent) newSummary(n *node) measure.Full {
	return measure.Full{
		Summarizer: &measure.Summarizer{
			NodeName: a.cfg.NodeName, Pods: n.sources.AllPods, UIDOf: lookup.Lookup{Static: n.pods.StaticNamed}.UIDOf,
			Stats:   n.runtime.Stats,
			Machine: n.reporter.Use, Clock: a.clk,
		},
		Gauge: n.keepers.Gauge, Uses: n.scraped.Uses, Observe: n.reporter.Observe,
	}
}

// newScraped prepares what is shown to those who scrape the node.
func (a *Agent) newScraped(n *node) *scrape.Pages {
	return scrape.New(scrape.Config{
		NodeName: a.cfg.NodeName, Version: a.cfg.Version,
		Groups:  func(ctx context.Context) ([]cri.Group, error) { return n.runtime.Groups(ctx, n.cgroupOf()) },
		Measure: a.cgroups.Measure, Processes: a.cgroups.ProcessesIn,
		Layers: (&measure.Layers{
			Stats: func(ctx context.Context, uid types.UID) ([]cri.ContainerStats, error) {
				return n.runtime.Stats(ctx, uid)
			},
			Clock: a.clk,
		}).Sizes,
		Machine: func() (scrape.Machine, error) {
			cpu, used, err := n.reporter.Use()
			memory, cores := n.reporter.Capacity()
			return scrape.Machine{CPU: cpu, Memory: used, MemoryCapacity: memory, Cores: cores}, err
		},
	})
}

// cgroupOf finds the cgroups of the pods that are on the node now.
func (n *node) cgroupOf() func(types.UID) string {
	known := map[types.UID]string{}
	for _, pod := range n.pods.ActivePods() {
		known[pod.UID] = n.runtime.PodCgroup(pod)
	}
	return func(uid types.UID) string { return known[uid] }
}

// probed counts a probe.
func (n *node) probed(pod *corev1.Pod, container, kind, result string, took time.Duration) {
	n.scraped.Probed(kind, result, container, pod.Name, pod.Namespace, string(pod.UID), took)
}
