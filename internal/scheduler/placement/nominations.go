package placement

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/fit"
)

// Nominations remembers which pods wait for which node to be freed for them. Call NewNominations.
type Nominations struct {
	nodeOf  map[types.UID]string
	byNode  map[string]map[types.UID]*fit.Pod
	victims map[types.UID][]types.UID // by the pod they leave for
}

// NewNominations returns an empty memory.
func NewNominations() *Nominations {
	return &Nominations{
		nodeOf:  map[types.UID]string{},
		byNode:  map[string]map[types.UID]*fit.Pod{},
		victims: map[types.UID][]types.UID{},
	}
}

// Set nominates the pod to the node; "" takes its nomination away. The victims it waits for are kept if the node is the
// same.
func (n *Nominations) Set(pod *fit.Pod, nodeName string) {
	victims := n.victims[pod.UID]
	if n.nodeOf[pod.UID] != nodeName {
		victims = nil
	}
	n.set(pod, nodeName, victims)
}

// Preempt nominates the pod to the node that the victims are about to leave.
func (n *Nominations) Preempt(pod *fit.Pod, nodeName string, victims []*fit.Pod) {
	uids := make([]types.UID, len(victims))
	for i, victim := range victims {
		uids[i] = victim.UID
	}
	n.set(pod, nodeName, uids)
}

func (n *Nominations) set(pod *fit.Pod, nodeName string, victims []types.UID) {
	n.Delete(pod.UID)
	if nodeName == "" {
		return
	}
	n.nodeOf[pod.UID] = nodeName
	if len(victims) > 0 {
		n.victims[pod.UID] = victims
	}
	if n.byNode[nodeName] == nil {
		n.byNode[nodeName] = map[types.UID]*fit.Pod{}
	}
	n.byNode[nodeName][pod.UID] = pod
}

// Delete takes a pod's nomination away.
func (n *Nominations) Delete(uid types.UID) {
	nodeName, known := n.nodeOf[uid]
	if !known {
		return
	}
	delete(n.nodeOf, uid)
	delete(n.victims, uid)
	delete(n.byNode[nodeName], uid)
	if len(n.byNode[nodeName]) == 0 {
		delete(n.byNode, nodeName)
	}
}

// Node returns the node to which the pod is nominated, "" if to none.
func (n *Nominations) Node(uid types.UID) string {
	if n == nil {
		return ""
	}
	return n.nodeOf[uid]
}

// awaits reports whether the pod waits for this other pod to leave.
func (n *Nominations) awaits(uid types.UID, other *fit.Pod) bool {
	return slices.Contains(n.victims[uid], other.UID)
}

// on returns the other pods nominated to the node that are at least as important as pod, in a fixed order.
func (n *Nominations) on(nodeName string, pod *fit.Pod) []*fit.Pod {
	if n == nil || len(n.byNode[nodeName]) == 0 {
		return nil
	}
	var promised []*fit.Pod
	for uid, other := range n.byNode[nodeName] {
		if uid != pod.UID && other.Priority >= pod.Priority {
			promised = append(promised, other)
		}
	}
	slices.SortFunc(promised, func(a, b *fit.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return promised
}

// lesser returns the pods nominated to the node that are less important than pod.
func (n *Nominations) lesser(nodeName string, pod *fit.Pod) []*fit.Pod {
	var lesser []*fit.Pod
	for _, other := range n.byNode[nodeName] {
		if other.Priority < pod.Priority {
			lesser = append(lesser, other)
		}
	}
	slices.SortFunc(lesser, func(a, b *fit.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return lesser
}
