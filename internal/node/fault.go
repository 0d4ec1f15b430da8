package node

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Cordoned is the fault of a node on which somebody wants nothing new.
const Cordoned = "the node is cordoned"

// Fault says why a node is out of order by itself, whatever runs on it; "" if it is
// not. Silent tells that nobody hears of it, and since when that is so.
func Fault(n *corev1.Node) (why string, silent bool, since time.Time) {
	ready := Condition(n, corev1.NodeReady)
	switch {
	case n.DeletionTimestamp != nil:
		return "the node is being deleted", false, n.DeletionTimestamp.Time
	case ready == nil:
		return "the node has not been ready yet", false, n.CreationTimestamp.Time
	case ready.Status == corev1.ConditionUnknown:
		return "the node does not answer", true, ready.LastTransitionTime.Time
	case ready.Status != corev1.ConditionTrue:
		return "the node is not ready" + because(ready), false, ready.LastTransitionTime.Time
	}
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		if text := faults[c.Type]; text != "" && c.Status == corev1.ConditionTrue {
			return text, false, c.LastTransitionTime.Time
		}
	}
	if n.Spec.Unschedulable {
		return Cordoned, false, time.Time{}
	}
	return "", false, time.Time{}
}

// faults are the conditions that say that something is wrong when they are true.
var faults = map[corev1.NodeConditionType]string{
	corev1.NodeMemoryPressure:     "the node is short of memory",
	corev1.NodeDiskPressure:       "the node is short of disk",
	corev1.NodePIDPressure:        "the node is short of process numbers",
	corev1.NodeNetworkUnavailable: "the node has no network for pods",
}

func because(c *corev1.NodeCondition) string {
	if c.Reason == "" {
		return ""
	}
	return ": " + c.Reason
}
