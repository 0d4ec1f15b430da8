package health

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Plan is what must be written about one node.
type Plan struct {
	// Node is the state that the plan was made on: read only.
	Node *corev1.Node
	// Conditions are to be merged into the node's status by type.
	Conditions []corev1.NodeCondition
	// Taints is the whole new list, if TaintsChanged.
	Taints        []corev1.Taint
	TaintsChanged bool
	// MarkPods asks to take the condition Ready from the node's pods, then to call PodsMarked.
	MarkPods bool
}

// Empty tells that there is nothing to write.
func (p Plan) Empty() bool {
	return len(p.Conditions) == 0 && !p.TaintsChanged && !p.MarkPods
}

// BecameUnknown tells that the plan takes the node's readiness away.
func (p Plan) BecameUnknown() bool {
	return readyStatus(p.Node) == corev1.ConditionTrue &&
		slices.ContainsFunc(p.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
}

// verdict is what the tracker knows beyond the node's object.
type verdict struct {
	lapsed bool
	evict  bool
}

// status is a condition's status as it will be once the plan is carried out.
func (v verdict) status(node *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	if v.lapsed && slices.Contains(reportedConditions, kind) {
		return corev1.ConditionUnknown
	}
	if c := condition(node, kind); c != nil {
		return c.Status
	}
	return ""
}

// The conditions that a kubelet reports, and so can stop reporting.
var reportedConditions = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
}

// pressureTaints are the conditions that keep new pods away while they are True.
var pressureTaints = []struct {
	condition corev1.NodeConditionType
	key       string
}{
	{corev1.NodeMemoryPressure, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.TaintNodeNetworkUnavailable},
}

func makePlan(node *corev1.Node, v verdict, now time.Time) Plan {
	p := Plan{Node: node}
	if v.lapsed {
		p.Conditions = unknownConditions(node, now)
	}
	wanted := wantedTaints(node, v)
	p.Taints, p.TaintsChanged = mergeTaints(node.Spec.Taints, wanted, now)
	return p
}

// unknownConditions are the reported conditions that a silent node can no longer vouch for.
func unknownConditions(node *corev1.Node, now time.Time) []corev1.NodeCondition {
	var changed []corev1.NodeCondition
	at := metav1.NewTime(now)
	for _, kind := range reportedConditions {
		current := condition(node, kind)
		if current == nil {
			changed = append(changed, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown,
				Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: at,
			})
			continue
		}
		if current.Status == corev1.ConditionUnknown {
			continue
		}
		c := *current
		c.Status = corev1.ConditionUnknown
		c.Reason, c.Message = "NodeStatusUnknown", "Kubelet stopped posting node status."
		c.LastTransitionTime = at
		changed = append(changed, c)
	}
	return changed
}

type taintID struct {
	key    string
	effect corev1.TaintEffect
}

// wantedTaints lists the node health taints that the node must have, and no others.
func wantedTaints(node *corev1.Node, v verdict) []taintID {
	var wanted []taintID
	if key := readinessTaint(v.status(node, corev1.NodeReady)); key != "" {
		wanted = append(wanted, taintID{key, corev1.TaintEffectNoSchedule})
		if v.evict {
			wanted = append(wanted, taintID{key, corev1.TaintEffectNoExecute})
		}
	}
	if node.Spec.Unschedulable {
		wanted = append(wanted, taintID{corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule})
	}
	for _, p := range pressureTaints {
		if v.status(node, p.condition) == corev1.ConditionTrue {
			wanted = append(wanted, taintID{p.key, corev1.TaintEffectNoSchedule})
		}
	}
	return wanted
}

// readinessTaint is the key for a readiness; a node that has not said anything yet is not ready.
func readinessTaint(status corev1.ConditionStatus) string {
	switch status {
	case corev1.ConditionTrue:
		return ""
	case corev1.ConditionUnknown:
		return corev1.TaintNodeUnreachable
	default:
		return corev1.TaintNodeNotReady
	}
}

// managed reports whether a taint is given and taken by node health alone.
func managed(t taintID) bool {
	switch t.key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		return t.effect == corev1.TaintEffectNoSchedule || t.effect == corev1.TaintEffectNoExecute
	case corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
		corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable:
		return t.effect == corev1.TaintEffectNoSchedule
	default:
		return false
	}
}

// mergeTaints keeps users' taints and those wanted that are there, and adds the rest.
func mergeTaints(current []corev1.Taint, wanted []taintID, now time.Time) ([]corev1.Taint, bool) {
	var present []taintID
	surplus := false
	for i := range current {
		id := taintID{current[i].Key, current[i].Effect}
		if managed(id) && !slices.Contains(wanted, id) {
			surplus = true
			continue
		}
		present = append(present, id)
	}
	missing := slices.ContainsFunc(wanted, func(id taintID) bool { return !slices.Contains(present, id) })
	if !surplus && !missing {
		return nil, false
	}
	merged := make([]corev1.Taint, 0, len(current)+len(wanted))
	for i := range current {
		if slices.Contains(present, taintID{current[i].Key, current[i].Effect}) {
			merged = append(merged, current[i])
		}
	}
	at := metav1.NewTime(now)
	for _, id := range wanted {
		if !slices.Contains(present, id) {
			merged = append(merged, corev1.Taint{Key: id.key, Effect: id.effect, TimeAdded: &at})
		}
	}
	return merged, true
}

func hasEvictionTaint(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute &&
			(t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
	})
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// readyStatus is the status of the node's condition Ready, empty if it has none.
func readyStatus(node *corev1.Node) corev1.ConditionStatus {
	return verdict{}.status(node, corev1.NodeReady)
}
