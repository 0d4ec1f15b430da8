package fact

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/node"
)

// Node is all that the matrix reads of a Node.
type Node struct {
	Name   string
	Labels map[string]string
	Taints []corev1.Taint
}

// OfNode reduces a Node to what the matrix reads. It shares the Node's
// maps and slices, which must not change afterwards.
func OfNode(n *corev1.Node) Node {
	return Node{Name: n.Name, Labels: n.Labels, Taints: n.Spec.Taints}
}

// HealthOf reduces a Node to whether it is out of order. One in maintenance is so by somebody's will, whatever else is
// wrong with it meanwhile.
func HealthOf(n *corev1.Node) Health {
	if why := node.Maintenance(n); why != "" {
		return Health{Name: n.Name, Fault: why, Maintained: true}
	}
	return FaultOf(n)
}

// FaultOf reduces a Node to whether it is out of order, where maintenance is no difference.
func FaultOf(n *corev1.Node) Health {
	h := Health{Name: n.Name}
	h.Fault, h.Silent, h.Since = node.Fault(n)
	h.Since = h.Since.UTC()
	if n.DeletionTimestamp != nil {
		h.Since = time.Time{} // somebody wants it so
	}
	return h
}

// Equal reports whether both describe the same node for the purpose of placement.
// When a taint was added does not matter.
func (n Node) Equal(o Node) bool {
	return n.Name == o.Name && maps.Equal(n.Labels, o.Labels) &&
		slices.EqualFunc(n.Taints, o.Taints, func(a, b corev1.Taint) bool {
			return a.MatchTaint(&b) &&
				a.Value == b.Value
		})
}

// Health is what a rollout must know of a node beside what placement reads.
type Health struct {
	Name string
	// Fault says why the node is out of order by itself; "" if it is not.
	Fault string
	// Silent tells that nobody hears of the node, Since when the fault began.
	Silent bool
	Since  time.Time
	// Maintained tells that the fault is that somebody works on the node.
	Maintained bool `json:",omitempty"`
}

// Told is what a rollout's course is told of the node, which is out of order by that fault.
func (h Health) Told(n *corev1.Node, fault string) course.Node {
	return course.Node{Object: n, Fault: fault, Silent: h.Silent, Since: h.Since, Maintained: h.Maintained}
}

// Verb is the event's word in scripts.
func (Health) Verb() string { return "health" }
