package fact

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/pod"
)

// unplaceableBecause returns what the scheduler says about the one node that a
// daemon pod is meant for; "" if it has not given up on it.
func unplaceableBecause(p *corev1.Pod) string {
	c := pod.Unschedulable(p)
	if pod.IsBound(p) || c == nil {
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
	return strings.HasSuffix(reason, "[NodeAffinity]") ||
		strings.HasSuffix(reason, "filtered out by the prefilter result") ||
		reason == "node(s) didn't match Pod's node affinity/selector"
}
