// Package nodeipam gives every node its own part of the cluster's pod network, and
// tells the node what it is a part of.
//
// A node object that brings a pod network along keeps it, since it cannot be changed,
// but it counts only if it is a part like those given here and no other node has it.
// Otherwise the node is told by an event, nothing is reserved for it, and agents make no
// path to it by the same rule.
package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/nodeipam/plan"
	"github.com/everynode/everynode/internal/node"
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
	// Writer writes nodes. Required.
	Writer Writer
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
				return before.UID != after.UID || before.Spec.PodCIDR != after.Spec.PodCIDR ||
					!slices.Equal(before.Spec.PodCIDRs, after.Spec.PodCIDRs) ||
					told(before) != told(after)
			},
		}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
}

// told is what the node knows of pod networks.
func told(n *corev1.Node) node.PodNetworks {
	networks, _ := node.PodNetworksOf(n)
	return networks
}

// fullRetry is how long a node without a pod network waits for one that is given back.
const fullRetry = 30 * time.Second

// holder is a node with the block that is its own.
type holder struct {
	uid   types.UID
	block netip.Prefix
}

// claimant is a node with a block that it wants and another has.
type claimant struct {
	holder
	age node.Age
}

type reconciler struct {
	cfg      Config
	networks node.PodNetworks
	reader   client.Reader
	writer   Writer

	mu      sync.Mutex // guards all below
	started bool
	blocks  *plan.Blocks
	holders map[string]holder // by node name
	// refused are the nodes that brought a block along that another one has.
	refused map[string]claimant
}

func newReconciler(reader client.Reader, cfg Config) (*reconciler, error) {
	if cfg.Writer == nil {
		return nil, errors.New("node ipam: Writer is required")
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
	return &reconciler{
		cfg: cfg, networks: node.PodNetworks{Cluster: blocks.Network(), NodeBits: cfg.NodeBits}, reader: reader,
		writer: cfg.Writer,
		blocks: blocks, holders: map[string]holder{}, refused: map[string]claimant{},
	}, nil
}

// Reconcile gives the node a block if it has none, and frees that of a node that is gone.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := r.start(ctx); err != nil {
		return reconcile.Result{}, err
	}
	var n corev1.Node
	if err := r.reader.Get(ctx, request.NamespacedName, &n); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("read node %s: %w", request.Name, err)
		}
		r.release(request.Name)
		return reconcile.Result{}, nil
	}
	block, err := r.claim(&n)
	switch {
	case errors.Is(err, plan.ErrFull):
		r.event(&n, corev1.EventTypeWarning, "CIDRNotAvailable",
			"Node %s gets no pod network: all %d parts of %s are given to nodes; delete nodes that are gone, or start the "+
				"server with a larger --cluster-cidr that holds this one",
			n.Name, r.blocks.Count(), r.blocks.Network())
		return reconcile.Result{RequeueAfter: fullRetry}, nil
	case err != nil:
		// Its pod network cannot be changed any more: whoever made the node must make it again.
		r.event(&n, corev1.EventTypeWarning, "CIDRNotAccepted", "%v; delete node %s so that it is given one", err, n.Name)
	}
	if !block.IsValid() && told(&n) == r.networks {
		return reconcile.Result{}, nil
	}
	if err := r.writer.SetPodCIDR(ctx, &n, block, r.networks); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, nil // its deletion follows and frees the block
		}
		return reconcile.Result{}, fmt.Errorf(
			"give node %s a part of the pod network %s: %w", n.Name, r.networks.Cluster, err,
		)
	}
	if block.IsValid() {
		klog.FromContext(ctx).V(2).Info("Assigned pod network", "node", n.Name, "podCIDR", block)
	}
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
	// The oldest first: of two that claim the same it is the one that has it.
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int {
		if node.AgeOf(&a).Before(node.AgeOf(&b)) {
			return -1
		}
		return 1
	})
	for i := range nodes.Items {
		if nodes.Items[i].Spec.PodCIDR != "" {
			// Each node is reconciled too, and told of what is wrong then.
			_ = r.hold(&nodes.Items[i])
		}
	}
	r.started = true
	return nil
}

// claim returns the block to write for the node, invalid if it has one by its own
// account; the error says why that does not count, or that there is none to give.
// A block once claimed stays the node's, so that a failed write is repeated with the same.
func (r *reconciler) claim(n *corev1.Node) (netip.Prefix, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.holders[n.Name]; ok && h.uid != n.UID {
		r.releaseLocked(n.Name)
	}
	if c, ok := r.refused[n.Name]; ok && c.uid != n.UID {
		delete(r.refused, n.Name)
	}
	if n.Spec.PodCIDR != "" {
		return netip.Prefix{}, r.hold(n)
	}
	if h, ok := r.holders[n.Name]; ok {
		return h.block, nil
	}
	block, err := r.blocks.Take()
	if err != nil {
		return netip.Prefix{}, err
	}
	r.holders[n.Name] = holder{n.UID, block}
	return block, nil
}

// hold notes the block that the node has by its own account. The error says why it does
// not count. Whatever a node claims, no more than one block is taken for it.
func (r *reconciler) hold(n *corev1.Node) error {
	block, err := r.networks.Part(n.Spec.PodCIDR)
	if err == nil && len(n.Spec.PodCIDRs) > 1 {
		err = fmt.Errorf("the pod networks %v are more than one", n.Spec.PodCIDRs)
	}
	if err != nil {
		return err
	}
	before, held := r.holders[n.Name]
	if held && before.block == block {
		return nil
	}
	if !r.blocks.Occupy(block) {
		r.refused[n.Name] = claimant{holder{n.UID, block}, node.AgeOf(n)}
		return fmt.Errorf("the pod network %s is another node's", block)
	}
	if held {
		r.blocks.Release(before.block)
	}
	delete(r.refused, n.Name)
	r.holders[n.Name] = holder{n.UID, block}
	return nil
}

func (r *reconciler) release(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.refused, name)
	r.releaseLocked(name)
}

// releaseLocked frees the node's block, or passes it to the oldest that was refused it.
func (r *reconciler) releaseLocked(name string) {
	h, ok := r.holders[name]
	if !ok {
		return
	}
	delete(r.holders, name)
	next := ""
	for other, c := range r.refused {
		if c.block == h.block && (next == "" || c.age.Before(r.refused[next].age)) {
			next = other
		}
	}
	if next == "" {
		r.blocks.Release(h.block)
		return
	}
	r.holders[next] = r.refused[next].holder
	delete(r.refused, next)
}

func (r *reconciler) event(n *corev1.Node, kind, reason, format string, args ...any) {
	if r.cfg.Events != nil {
		r.cfg.Events.Eventf(n, kind, reason, format, args...)
	}
}
