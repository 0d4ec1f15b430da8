// Package node answers questions of fact about a Node. It reads nothing but its
// arguments.
package node

import (
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Condition returns the node's condition of the given type, or nil.
func Condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady reports whether the node's Ready condition is True.
func IsReady(n *corev1.Node) bool {
	c := Condition(n, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// HasTaint reports whether the node carries a taint of that key and effect,
// whatever its value.
func HasTaint(n *corev1.Node, key string, effect corev1.TaintEffect) bool {
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Key == key && n.Spec.Taints[i].Effect == effect {
			return true
		}
	}
	return false
}

// Address returns the node's first address of the given type, or "".
func Address(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return ""
}

// AgentAddress returns HOST:PORT where the node's agent serves, or "" if the node reports none: simulated nodes have no
// agent.
func AgentAddress(n *corev1.Node) string {
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	for _, t := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName} {
		if host := Address(n, t); host != "" && port != 0 {
			return net.JoinHostPort(host, strconv.Itoa(int(port)))
		}
	}
	return ""
}
