package proxy

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/network/proxy/changes"
	"github.com/everynode/everynode/internal/network/proxy/ruleset"
)

// Known is what a node knew in an earlier run.
type Known struct {
	// Node is nil if it is not known.
	Node           *corev1.Node
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
}

// recollection is where Services led when the node last knew.
type recollection struct {
	node     ruleset.Node
	services []changes.Service
	state    *ruleset.State
}

func (p *Proxy) recollect(known *Known) *recollection {
	tracker, node := changes.New(p.config.NodeName), p.node
	if known.Node != nil {
		tracker.Node(known.Node)
		node.Pods = tracker.Pods()
	}
	for _, svc := range known.Services {
		tracker.Service(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, svc)
	}
	node.Services = p.serviceNetwork(tracker)
	for _, slice := range known.EndpointSlices {
		tracker.Slice(types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}, p.alive(slice, node.Pods))
	}
	r := &recollection{node: node, services: tracker.All(), state: ruleset.New(node)}
	r.state.Update(r.services)
	return r
}

// alive is a slice without the endpoints that are pods in the node's own network: they
// ended with the machine, and their addresses are given to other pods. What uses the
// network of the node keeps its address.
func (p *Proxy) alive(slice *discoveryv1.EndpointSlice, pods []netip.Prefix) *discoveryv1.EndpointSlice {
	out := *slice
	out.Endpoints = slices.DeleteFunc(slices.Clone(slice.Endpoints), func(e discoveryv1.Endpoint) bool {
		if e.NodeName == nil || *e.NodeName != p.config.NodeName {
			return false
		}
		return slices.ContainsFunc(e.Addresses, func(text string) bool {
			ip, err := netip.ParseAddr(text)
			return err == nil && slices.ContainsFunc(pods, func(n netip.Prefix) bool { return n.Contains(ip) })
		})
	})
	return &out
}

// await waits until the caches are told, and sees to it meanwhile that Services lead
// where the node last knew. It is false if ctx ended.
func (p *Proxy) await(ctx context.Context, told []cache.InformerSynced) bool {
	synced := make(chan bool, 1)
	go func() { synced <- cache.WaitForCacheSync(ctx.Done(), told...) }()
	check := p.config.Clock.NewTicker(checkEvery)
	defer check.Stop()
	for {
		if err := p.recall(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(
				err, "Services lead nowhere before the API server answers; trying again", "in", checkEvery,
			)
		}
		select {
		case ok := <-synced:
			return ok
		case <-check.C():
		}
	}
}

// recall makes Services lead where they did when the node last knew, if there are no
// rules at all: the machine was started again, perhaps without a control plane. Rules
// that are there from before say more than what was remembered.
func (p *Proxy) recall(ctx context.Context) error {
	if p.recalled == nil {
		return nil
	}
	if empty, err := p.filter.Empty(ctx); err != nil || !empty {
		return err
	}
	if err := p.filter.Replace(ctx, p.recalled.node, p.recalled.state.Whole()); err != nil {
		return err
	}
	klog.FromContext(ctx).Info(
		"Until the API server answers, services lead where they did before", "services", len(p.recalled.services),
	)
	return nil
}

// gone are the flows of frontends that were known before and are no more, now that
// services are all there are. Afterwards what was known is dropped.
func (p *Proxy) gone(services []changes.Service) (out []ruleset.Flow) {
	if p.recalled == nil {
		return nil
	}
	now, there := slices.Clone(services), map[types.NamespacedName]bool{}
	for _, svc := range services {
		there[svc.Name] = true
	}
	for _, old := range p.recalled.services {
		if !there[old.Name] {
			now = append(now, changes.Service{Name: old.Name})
		}
	}
	out = p.recalled.state.Update(now).Flows
	p.recalled = nil
	return out
}
