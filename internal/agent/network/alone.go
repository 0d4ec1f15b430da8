package network

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/node/peer"
)

// alonePatience is how long a machine that was switched on waits for the control plane before it makes the paths that
// it remembers.
const alonePatience = 5 * time.Second

// Known is what a node knows of the networks of all nodes.
type Known struct {
	// Pods is what the control plane told of the cluster's network.
	Pods node.PodNetworks
	// Nodes are all of them, this one too.
	Nodes []*peer.Node
}

// Known is what is to be remembered for a start without a control plane.
func (n *Network) Known() Known {
	n.working.Lock()
	defer n.working.Unlock()
	out := Known{Pods: n.peers.bounds.PodNetworks, Nodes: make([]*peer.Node, 0, len(n.peers.nodes))}
	for name, m := range n.peers.nodes {
		o := &peer.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(m.said.age.Created())}}
		if m.said.pods != "" {
			o.PodCIDRs = []string{m.said.pods}
		}
		if m.said.ip.IsValid() {
			o.Addresses = []string{m.said.ip.String()}
		}
		out.Nodes = append(out.Nodes, o)
	}
	return out
}

// hear waits until everything was told that there is at first, false if the context ends before that. A machine that
// was switched on without a control plane goes on with what it remembers; it learns the rest when it is told.
func (n *Network) hear(ctx context.Context, wg *sync.WaitGroup, told []cache.InformerSynced) bool {
	if n.config.Known == nil {
		return cache.WaitForCacheSync(ctx.Done(), told...)
	}
	early, stop := context.WithTimeout(ctx, n.patience)
	heard := cache.WaitForCacheSync(early.Done(), told...)
	stop()
	if heard || ctx.Err() != nil {
		return heard
	}
	for !n.recall(ctx) {
		// Somebody else may take away what is there, as when the control plane is.
		next, stop := context.WithTimeout(ctx, n.recallEvery)
		heard := cache.WaitForCacheSync(next.Done(), told...)
		stop()
		if heard || ctx.Err() != nil {
			return heard
		}
	}
	wg.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), told...) {
			return
		}
		n.mu.Lock()
		n.alone, n.moved = false, true
		n.mu.Unlock()
		n.poke()
		if n.config.Learned != nil {
			n.config.Learned() // What was told meanwhile was not told to be remembered.
		}
	})
	return true
}

// remains is what an earlier run of the agent left on the machine.
type remains struct {
	paths map[netip.Prefix]path
	rules counts
}

func (r remains) equal(other remains) bool {
	return maps.Equal(r.paths, other.paths) && r.rules.equal(other.rules)
}

// recall has the next sync begin with what is remembered. On a machine that has paths and rules already the agent alone
// was started again: they are as good as what is remembered, or better, and stay as they are, as long as nobody takes
// any of them away.
func (n *Network) recall(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	have, err := n.kernel.paths()
	made, rulesErr := n.kernel.counts()
	if err := errors.Join(err, rulesErr); err != nil {
		logger.Error(err, "Whether there are paths to other nodes' pods is not known; looking again", "in", n.recallEvery)
		return false
	}
	now := remains{paths: have, rules: made}
	if n.found == nil {
		n.found = &now
	}
	if len(have) > 0 && len(made.rules) > 0 && now.equal(*n.found) {
		return false
	}
	logger.Info(
		"The API server does not answer; making the paths to other nodes' pods as they were last",
		"nodes", len(n.config.Known.Nodes),
	)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.alone = true
	if !n.told.Cluster.IsValid() {
		n.told = n.config.Known.Pods
	}
	for _, o := range n.config.Known.Nodes {
		if _, said := n.pending[o.Name]; !said {
			n.pending[o.Name] = factsOf(o)
		}
	}
	return true
}

// remembered are the names of the nodes that are remembered.
func (c *Config) remembered() map[string]bool {
	names := map[string]bool{}
	if c.Known != nil {
		for _, o := range c.Known.Nodes {
			names[o.Name] = true
		}
	}
	return names
}
