// Package nodeipam gives every node its own part of the cluster's pod network.
package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/nodeipam/plan"
)

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config says what to divide and through what to write.
type Config struct {
	// ClusterCIDR is the network of all pods, such as 10.244.0.0/16. Required.
	ClusterCIDR netip.Prefix
	// NodeBits is the prefix length of one node's part; 24 for IPv4 and 64 for IPv6 if zero.
	NodeBits int
	// Client writes nodes. It must have no client-side rate limit. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	r, err := newReconciler(mgr.GetCache(), cfg)
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodeipam").
		For(&corev1.Node{}).
		WithEventFilter(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
				return before.UID != after.UID || before.Spec.PodCIDR != after.Spec.PodCIDR
			},
		}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
}

// holder is a node with the blocks that are its own.
type holder struct {
	uid    string
	blocks []netip.Prefix
}

type reconciler struct {
	cfg    Config
	reader client.Reader
	api    api

	mu      sync.Mutex // guards all below
	started bool
	blocks  *plan.Blocks
	holders map[string]holder // by node name
	// shared is set once two nodes were found to hold the same block.
	shared bool
}

func newReconciler(reader client.Reader, cfg Config) (*reconciler, error) {
	if cfg.Client == nil {
		return nil, errors.New("node ipam: Client is required")
	}
	if cfg.NodeBits == 0 {
		cfg.NodeBits = 64
		if cfg.ClusterCIDR.Addr().Is4() {
			cfg.NodeBits = 24
		}
	}
	blocks, err := plan.NewBlocks(cfg.ClusterCIDR, cfg.NodeBits)
	if err != nil {
		return nil, fmt.Errorf("node ipam: %w", err)
	}
	return &reconciler{cfg: cfg, reader: reader, api: clientAPI{cfg.Client}, blocks: blocks, holders: map[string]holder{}}, nil
}

// Reconcile gives the node a block if it has none, and frees those of a node that is gone.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := r.start(ctx); err != nil {
		return reconcile.Result{}, err
	}
	var node corev1.Node
	if err := r.reader.Get(ctx, request.NamespacedName, &node); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("read node %s: %w", request.Name, err)
		}
		r.release(request.Name)
		return reconcile.Result{}, nil
	}
	block, assign, err := r.claim(ctx, &node)
	switch {
	case errors.Is(err, plan.ErrFull):
		// Nothing to retry with until a node goes: the controller's back-off is soon enough.
		r.event(&node, corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: CIDRNotAvailable", node.Name)
		return reconcile.Result{}, fmt.Errorf("give node %s a part of %s: %w", node.Name, r.blocks.Network(), err)
	case err != nil || !assign:
		return reconcile.Result{}, err
	}
	if err := r.api.SetPodCIDR(ctx, &node, block); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // its deletion follows and frees the block
		}
		return reconcile.Result{}, fmt.Errorf("give node %s the pod network %s: %w", node.Name, block, err)
	}
	klog.FromContext(ctx).V(2).Info("Assigned pod network", "node", node.Name, "podCIDR", block)
	return reconcile.Result{}, nil
}

// start takes note of all blocks in use before the first is given out: a node that
// was not looked at yet may hold any of them.
func (r *reconciler) start(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		return nil
	}
	var nodes corev1.NodeList
	if err := r.reader.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		r.hold(ctx, &nodes.Items[i])
	}
	r.started = true
	return nil
}

// claim returns the block to write for the node; false if it has its own already.
// A block once claimed stays the node's, so that a failed write is repeated with the same.
func (r *reconciler) claim(ctx context.Context, node *corev1.Node) (netip.Prefix, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.holders[node.Name]; ok && h.uid != string(node.UID) {
		r.releaseLocked(node.Name)
	}
	if node.Spec.PodCIDR != "" {
		r.hold(ctx, node)
		return netip.Prefix{}, false, nil
	}
	if h, ok := r.holders[node.Name]; ok {
		return h.blocks[0], true, nil
	}
	block, err := r.blocks.Take()
	if err != nil {
		return netip.Prefix{}, false, err
	}
	r.holders[node.Name] = holder{uid: string(node.UID), blocks: []netip.Prefix{block}}
	return block, true, nil
}

// hold notes the blocks that the node has by its own account.
func (r *reconciler) hold(ctx context.Context, node *corev1.Node) {
	cidrs := node.Spec.PodCIDRs
	if len(cidrs) == 0 && node.Spec.PodCIDR != "" {
		cidrs = []string{node.Spec.PodCIDR}
	}
	var blocks []netip.Prefix
	for _, text := range cidrs {
		block, err := netip.ParsePrefix(text)
		if err != nil {
			klog.FromContext(ctx).Info("Node has an invalid pod network", "node", node.Name, "podCIDR", text)
			continue
		}
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		return
	}
	before := r.holders[node.Name]
	for _, old := range before.blocks {
		r.blocks.Release(old)
	}
	for _, block := range blocks {
		if !r.blocks.Occupy(block) && r.blocks.Network().Overlaps(block) {
			r.shared = true
			klog.FromContext(ctx).Info("Two nodes have overlapping pod networks", "node", node.Name, "podCIDR", block)
		}
	}
	r.holders[node.Name] = holder{uid: string(node.UID), blocks: blocks}
}

func (r *reconciler) release(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.releaseLocked(name)
}

func (r *reconciler) releaseLocked(name string) {
	for _, block := range r.holders[name].blocks {
		r.blocks.Release(block)
	}
	delete(r.holders, name)
	if !r.shared {
		return
	}
	for _, h := range r.holders { // another node may hold what was just freed
		for _, block := range h.blocks {
			r.blocks.Occupy(block)
		}
	}
}

func (r *reconciler) event(node *corev1.Node, kind, reason, format string, args ...any) {
	if r.cfg.Events != nil {
		r.cfg.Events.Eventf(node, kind, reason, format, args...)
	}
}
