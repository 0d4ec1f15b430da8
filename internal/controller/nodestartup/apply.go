package nodestartup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// carryOut changes the gate of a node, or takes it away. A node that is gone, or has another gate by now, is news.
func (c *controller) carryOut(ctx context.Context, n *corev1.Node, s *v1alpha1.NodeStartup, seen *corev1.Taint,
	d *plan.Decision) error {
	var without []string
	for _, name := range d.Without {
		without = append(without, name.String())
	}
	err := c.cfg.Gates.SetGate(ctx, n, seen, d.Gate, without)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("change the gate of node %s: %w", n.Name, err)
	}
	if len(without) > 0 {
		c.event(n, corev1.EventTypeWarning, "StartedWithout", "Timeout: the node goes on without %s",
			strings.Join(without, ", "))
	}
	if len(d.Barred) > 0 {
		c.event(n, corev1.EventTypeWarning, "NotClosed", "The node opens: %s", plan.BarredBy(s.Name, d.Barred))
	}
	if d.Gate != nil {
		return nil
	}
	klog.FromContext(ctx).V(2).Info("Node opened", "node", n.Name, "gate", seen.Value)
	how := openedStarted
	switch {
	case s == nil:
		how = openedGone
	case len(d.Barred) > 0:
		how = openedBarred
	case len(without) > 0:
		how = openedTimeout
	}
	since := d.Since
	if seen.TimeAdded != nil {
		since = deadline.Later(since, seen.TimeAdded.Time)
	}
	c.metrics.open(how, c.cfg.Clock.Since(since))
	return nil
}

// writeStatuses brings the statuses of all NodeStartups up to date.
func (c *controller) writeStatuses(ctx context.Context) error {
	all, err := c.startupsNow(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	var errs failures
	statuses := plan.Statuses(all, nodes, c.cfg.Setting, c.standing(ctx, &errs))
	for _, s := range all {
		c.metrics.show(s.Name, statuses[s.Name])
		errs = append(errs, c.writeStatus(ctx, s, statuses[s.Name]))
	}
	return errors.Join(errs...)
}

// writeStatus writes one status, if it differs. A NodeStartup that changed meanwhile is news.
func (c *controller) writeStatus(ctx context.Context, s *v1alpha1.NodeStartup,
	status *v1alpha1.NodeStartupStatus) error {
	if plan.Same(&s.Status, status) || newer.Check(s) != nil { // writing would lose what a newer program wrote
		return nil
	}
	next := s.DeepCopy()
	conditions := slices.DeleteFunc(next.Status.Conditions, func(was metav1.Condition) bool { // of another setting
		return meta.FindStatusCondition(status.Conditions, was.Type) == nil
	})
	for _, condition := range status.Conditions {
		condition.LastTransitionTime = metav1.NewTime(c.cfg.Clock.Now())
		meta.SetStatusCondition(&conditions, condition)
	}
	next.Status = *status
	next.Status.Conditions = conditions
	_, err := c.cfg.Startups.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		c.tell()
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of NodeStartup %s: %w", s.Name, err)
	}
	return nil
}

// nodes are all nodes, as statuses count them.
func (c *controller) nodes(ctx context.Context) ([]plan.Node, error) {
	var list corev1.NodeList
	err := c.reader.List(ctx, &list)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]plan.Node, 0, len(list.Items))
	for i := range list.Items {
		n := &list.Items[i]
		node := plan.Node{
			Name: n.Name, Labels: n.Labels, Gate: nodestartup.TaintOf(n.Spec.Taints),
			Without:   n.Annotations[nodestartup.WithoutAnnotation] != "",
			NotClosed: n.Annotations[nodestartup.NotClosedAnnotation],
		}
		if at := c.starting[n.Name]; at != nil {
			node.Waits, node.Late = at.waits, at.late
		}
		out = append(out, node)
	}
	return out, nil
}

func (c *controller) event(object runtime.Object, kind, reason, format string, args ...any) {
	if c.cfg.Events != nil {
		c.cfg.Events.Eventf(object, kind, reason, format, args...)
	}
}
