package nodestartup

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Marker writes on nodes of an API server of others, which closes none by itself.
type Marker interface {
	// Leaving reports whether Everynode leaves the cluster: then no node is closed, and those that are open.
	Leaving(ctx context.Context) (bool, error)
	// WriteDue writes on this very node what is due. It is refused with Conflict if its mark or its gate is another by
	// now.
	WriteDue(ctx context.Context, node *corev1.Node, due plan.Due) error
}

// leaves reports whether Everynode leaves the cluster.
func (c *controller) leaves(ctx context.Context) (bool, error) {
	if c.cfg.Marker == nil {
		return false, nil
	}
	return c.cfg.Marker.Leaving(ctx)
}

// mark writes on a node of an API server of others what is due. It reports whether that was anything.
func (c *controller) mark(ctx context.Context, n *corev1.Node, now time.Time) (bool, error) {
	all, err := c.startupsNow(ctx)
	if err != nil || len(all) == 0 {
		return false, err
	}
	var first *v1alpha1.NodeStartup
	if matching := nodestartup.NewSet(all).Matching(n.Labels); len(matching) > 0 {
		first = matching[0]
	}
	c.mu.Lock()
	vouched := c.arrivals.Vouch(n, first)
	c.mu.Unlock()
	var errs failures
	due := plan.Look(vouched, first, c.standing(ctx, &errs), c.cfg.Setting, now)
	if err := errs.err(); err != nil || due == (plan.Due{}) {
		return false, err
	}
	err = c.cfg.Marker.WriteDue(ctx, n, due)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return true, nil // that is news
	case err != nil:
		return false, fmt.Errorf("write on node %s what is due: %w", n.Name, err)
	}
	if due.NotClosed != "" {
		c.metrics.notClosed.Inc()
		c.event(n, corev1.EventTypeWarning, "NotClosed", "The node stays open: %s", due.NotClosed)
	}
	if due.Gate != nil && due.While == nil {
		klog.FromContext(ctx).V(2).Info("Node closed: its machine has started again", "node", n.Name)
		c.event(n, corev1.EventTypeNormal, "ClosedAgain", "The machine has started again: the node opens when its "+
			"daemons are available")
	}
	return true, nil
}

// startupsNow are all NodeStartups.
func (c *controller) startupsNow(ctx context.Context) ([]*v1alpha1.NodeStartup, error) {
	var list v1alpha1.NodeStartupList
	err := c.reader.List(ctx, &list)
	if err != nil {
		return nil, fmt.Errorf("list NodeStartups: %w", err)
	}
	all := make([]*v1alpha1.NodeStartup, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// failures keeps what went wrong where nothing can be returned.
type failures []error

func (f failures) err() error {
	if len(f) == 0 {
		return nil
	}
	return f[0]
}

// standing says how DaemonSets are; what cannot be read goes to errs.
func (c *controller) standing(ctx context.Context, errs *failures) func(types.NamespacedName) plan.Standing {
	return func(name types.NamespacedName) plan.Standing {
		var ds appsv1.DaemonSet
		err := c.reader.Get(ctx, name, &ds)
		switch {
		case client.IgnoreNotFound(err) != nil:
			*errs = append(*errs, fmt.Errorf("read DaemonSet %s: %w", name, err))
			return plan.Found
		case err != nil, ds.DeletionTimestamp != nil:
			return plan.Missing
		case c.bars(&ds):
			return plan.Barred
		}
		return plan.Found
	}
}

// bars reports whether a DaemonSet's pods do not tolerate the taint. Only beside another controller, which goes by the
// template, may that be.
func (c *controller) bars(ds *appsv1.DaemonSet) bool {
	return c.cfg.Setting == plan.NextTo && !nodestartup.Tolerated(&ds.Spec.Template.Spec)
}

// queueAll has all nodes looked at, for what may be due on them.
func (c *controller) queueAll(ctx context.Context) {
	if c.cfg.Marker == nil {
		return
	}
	var list corev1.NodeList
	err := c.reader.List(ctx, &list)
	if err != nil {
		return // ctx has ended: the cache answers otherwise
	}
	for i := range list.Items {
		c.queue.Add(list.Items[i].Name)
	}
}

// mayBeDue reports whether something may be due on a node of an API server of others, since it was as before.
func (c *controller) mayBeDue(old, n *corev1.Node) bool {
	if c.cfg.Marker == nil {
		return false
	}
	mark, marked := nodestartup.MarkOf(n)
	return old == nil || !marked || mark.BootID != n.Status.NodeInfo.BootID || !sameForStatus(old, n)
}
