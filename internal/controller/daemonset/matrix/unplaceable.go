package matrix

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/pod"
)

// FailedPlacement says that a selected node cannot take its pod. It is for
// people, and no outcome is expected.
type FailedPlacement struct {
	Target
	Node, PodName string
	// Detail is what the scheduler says about the node.
	Detail string
}

// Why is the reason for the action.
func (a *FailedPlacement) Why() Reason { return ReasonUnplaceable }

func (a *FailedPlacement) String() string {
	return fmt.Sprintf("unplaceable %s/%s pod=%s (%s)", a.Name, a.Node, a.PodName, a.Detail)
}

// noteUnplaceable remembers a cell of which there is something new to tell.
func (r *row) noteUnplaceable(c *cell) {
	p := c.unplaceable()
	switch {
	case p == nil:
		if c.told != "" && slices.ContainsFunc(c.pods, func(p *trackedPod) bool { return p.live() && p.info.Bound }) {
			c.told = ""
		}
	case p.info.Unplaceable != c.told && !c.untold:
		c.untold = true
		r.untold = append(r.untold, c)
	}
}

// unplaceable returns the live pod that the scheduler found no room for.
func (c *cell) unplaceable() *trackedPod {
	if c.column == nil || c.eligibility != placement.ShouldRun {
		return nil
	}
	for _, p := range c.pods {
		if p.live() && p.info.Phase == PodActive && p.info.Unplaceable != "" {
			return p
		}
	}
	return nil
}

// placements tells of each node and reason once.
func (r *row) placements(out []Action) []Action {
	slices.SortFunc(r.untold, func(a, b *cell) int { return strings.Compare(a.node, b.node) })
	for _, c := range r.untold {
		c.untold = false
		if p := c.unplaceable(); p != nil && p.info.Unplaceable != c.told {
			c.own().told = p.info.Unplaceable
			out = append(out, &FailedPlacement{Target: r.target(), Node: c.node, PodName: p.info.Name, Detail: c.told})
		}
	}
	r.untold = nil
	return out
}

// unplaceableBecause returns what the scheduler says about the one node that a
// daemon pod is meant for; "" if it has not given up on it.
func unplaceableBecause(p *corev1.Pod) string {
	c := pod.Condition(p, corev1.PodScheduled)
	if pod.IsBound(p) || c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		return ""
	}
	return placementReason(c.Message)
}

// placementReason takes the counts and the other nodes out of a scheduler's
// message, so that it says the same while nodes come and go:
//
//	0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: ...
//
// becomes "Insufficient memory". A message of another form stays as it is.
func placementReason(message string) string {
	_, list, ok := strings.Cut(message, "nodes are available: ")
	if !ok {
		return strings.TrimSpace(message)
	}
	list, _, _ = strings.Cut(list, " preemption: ")
	var all, own []string
	for _, item := range strings.Split(strings.TrimSuffix(strings.TrimSpace(list), "."), ", ") {
		reason := strings.TrimLeft(item, "0123456789")
		reason = strings.TrimPrefix(reason, " ")
		all = append(all, reason)
		if !aboutOtherNodes(reason) {
			own = append(own, reason)
		}
	}
	if len(own) == 0 {
		own = all
	}
	return strings.Join(own, ", ")
}

// aboutOtherNodes recognises what schedulers say of nodes that the pod's own
// affinity leaves out.
func aboutOtherNodes(reason string) bool {
	return strings.HasSuffix(reason, "[NodeAffinity]") || strings.HasSuffix(reason, "filtered out by the prefilter result") ||
		reason == "node(s) didn't match Pod's node affinity/selector"
}
