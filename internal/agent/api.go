package agent

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/callers"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/scrape"
	"github.com/everynode/everynode/internal/agent/streaming"
)

// newServer opens the port at which the API server, and agents for monitoring, call the node: at all of its addresses, as they look
// for it at any.
func (a *Agent) newServer(n *node, client kubernetes.Interface, identity *join.Identity) (*streaming.Server, error) {
	guard := callers.New(callers.Config{NodeName: a.cfg.NodeName, Client: client, ClientCAs: identity.CAPool})
	return streaming.Listen(streaming.Config{
		Address:     net.JoinHostPort("", strconv.Itoa(int(a.cfg.Port))),
		Certificate: identity.ServingCertificate, ClientCAs: identity.CAPool, Protect: guard.Protect,
		Lookup: lookup{sources: n.sources, runtime: n.runtime, static: n.pods.staticNamed}, Runtime: streams{n.runtime},
		Pods: n.sources.allPods, Summary: n.fullSummary(a.newSummarizer(n).Summary, n.gauge,
			func(pod *corev1.Pod) string { return string(lookup{static: n.pods.staticNamed}.uidOf(pod)) }), Pages: n.scraped.Handlers(), Images: n.stock, Configz: a.cfg.Configz(),
	})
}

// newScraped prepares what is shown to those who scrape the node.
func (a *Agent) newScraped(n *node) *scrape.Pages {
	return scrape.New(scrape.Config{
		NodeName: a.cfg.NodeName, Version: a.cfg.Version,
		Groups:  func(ctx context.Context) ([]cri.Group, error) { return n.runtime.Groups(ctx, n.cgroupOf()) },
		Measure: a.cgroups.Measure, Processes: a.cgroups.ProcessesIn,
		Layers: (&layers{node: n, clock: a.clk}).sizes,
		Machine: func() (scrape.Machine, error) {
			cpu, used, err := n.reporter.Use()
			memory, cores := n.reporter.Capacity()
			return scrape.Machine{CPU: cpu, Memory: used, MemoryCapacity: memory, Cores: cores}, err
		},
	})
}

// layersFor is how long it counts what containers had on the disk: the runtime's answer is large, and little of it changes.
const layersFor = time.Minute

// layers remember what containers wrote to their own file systems.
type layers struct {
	node  *node
	clock clock.Clock

	mu    sync.Mutex // guards what is below
	at    time.Time
	known map[string]int64
}

// sizes are in bytes, by the containers' IDs. The map is not changed any more.
func (l *layers) sizes(ctx context.Context) (map[string]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known != nil && l.clock.Since(l.at) < layersFor {
		return l.known, nil
	}
	stats, err := l.node.runtime.Stats(ctx, "")
	if err != nil {
		return nil, err
	}
	l.known, l.at = make(map[string]int64, len(stats)), l.clock.Now()
	for _, s := range stats {
		l.known[s.ID] = s.Layer
	}
	return l.known, nil
}

// cgroupOf finds the cgroups of the pods that are on the node now.
func (n *node) cgroupOf() func(types.UID) string {
	known := map[types.UID]string{}
	for _, pod := range n.pods.activePods() {
		known[pod.UID] = n.runtime.PodCgroup(pod)
	}
	return func(uid types.UID) string { return known[uid] }
}

// probed counts a probe.
func (n *node) probed(pod *corev1.Pod, container, kind, result string, took time.Duration) {
	n.scraped.Probed(kind, result, container, pod.Name, pod.Namespace, string(pod.UID), took)
}

// lookPatience is how long the runtime may not have been looked through before the node is unwell: it hangs, or fails. A kubelet
// allows three minutes, too.
const lookPatience = 3 * time.Minute

// healthy says what is wrong with the agent itself, in a kubelet's words. A node that is unwell is not ready.
func (p *pods) healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := p.clock.Since(p.lookedAt); since > lookPatience {
		return fmt.Errorf("PLEG is not healthy: pleg was last seen active %v ago; threshold is %v", since.Truncate(time.Second), lookPatience)
	}
	return nil
}
