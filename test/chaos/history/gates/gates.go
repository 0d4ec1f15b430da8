// Package gates judges NodeStartups from the history alone: nodes are closed until their daemons are available. It
// knows none of the product's code.
//
//   - No pod that does not tolerate the gate is bound to a node before the write that opened it (Early).
//   - A node is closed from the write that creates it, opens only while all its daemons are available, and does not
//     stay closed then (Judge, which also says how long that took).
//
// A node that is closed again, as its machine has started once more, is not judged: who binds a pod may not know yet.
package gates

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history"
)

// taint is the key of the gate.
const taint = "everynode.io/starting"

// Bound is the rule of Early.
const Bound = "bound to a node before its gate opened"

// Write is what one write of the history says of a node or a pod, of which one is nil.
type Write struct {
	Revision int64
	Gone     bool
	Node     *Node
	Pod      *Pod
}

// Node is one as it was written.
type Node struct {
	Name   string
	UID    types.UID
	Closed bool
}

// Pod is one as it was written.
type Pod struct {
	Name string
	UID  types.UID
	// Node is the one that it is bound to; "" for none.
	Node string
	// Daemon is the namespace and name of the DaemonSet that controls it; "" for none.
	Daemon string
	// Ready tells that it is, and not on its way out; Tolerates that the gate is not meant for it.
	Ready, Tolerates bool
}

// Of reads a write; false if it is of something else.
func Of(revision int64, object metav1.Object, gone bool) (w Write, is bool) {
	w = Write{Revision: revision, Gone: gone}
	switch o := object.(type) {
	case *corev1.Node:
		w.Node = &Node{Name: o.Name, UID: o.UID, Closed: slices.ContainsFunc(o.Spec.Taints, closes)}
	case *corev1.Pod:
		w.Pod = &Pod{Name: o.Name, UID: o.UID, Node: o.Spec.NodeName}
		w.Pod.Tolerates = slices.ContainsFunc(o.Spec.Tolerations, tolerates)
		ref := metav1.GetControllerOfNoCopy(o)
		if ref != nil && ref.Kind == "DaemonSet" {
			w.Pod.Daemon = o.Namespace + "/" + ref.Name
		}
		w.Pod.Ready = o.DeletionTimestamp == nil && slices.ContainsFunc(o.Status.Conditions, ready)
	default:
		return w, false
	}
	return w, true
}

// closes leaves out gates with the effect PreferNoSchedule, which close nothing.
func closes(t corev1.Taint) bool { return t.Key == taint && t.Effect == corev1.TaintEffectNoSchedule }

func tolerates(t corev1.Toleration) bool {
	return (t.Key == taint || t.Key == "" && t.Operator == corev1.TolerationOpExists) &&
		(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
}

func ready(c corev1.PodCondition) bool {
	return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
}

// Fault is what was not as promised.
type Fault struct {
	Revision int64
	Object   types.UID
	Text     string
}

func (f Fault) String() string { return fmt.Sprintf("at revision %d: %s", f.Revision, f.Text) }

// InOrder sorts writes by their revision, and has each only once.
func InOrder(writes []Write) []Write {
	slices.SortStableFunc(writes, func(a, b Write) int { return cmp.Compare(a.Revision, b.Revision) })
	return slices.CompactFunc(writes, func(a, b Write) bool { return a.Revision == b.Revision })
}

// Early finds pods that were bound to a node before the write that opened it. Who names the node of a pod that he makes
// binds nothing, but for a DaemonSet's pod. The writes are in order.
func Early(writes []Write) (out []Fault) {
	closed, bound := map[string]bool{}, map[types.UID]bool{} // closed since its creation
	for i := range writes {
		switch w := &writes[i]; {
		case w.Node != nil && w.Gone:
			delete(closed, w.Node.Name)
		case w.Node != nil:
			was, known := closed[w.Node.Name]
			closed[w.Node.Name] = (was || !known) && w.Node.Closed
		case w.Gone:
			delete(bound, w.Pod.UID)
		default:
			was, known := bound[w.Pod.UID]
			bound[w.Pod.UID] = w.Pod.Node != ""
			binds := w.Pod.Node != "" && !was && (known || w.Pod.Daemon != "")
			if binds && !w.Pod.Tolerates && closed[w.Pod.Node] {
				out = append(out, Fault{w.Revision, w.Pod.UID,
					fmt.Sprintf("pod %s is bound to %s, which is closed", w.Pod.Name, w.Pod.Node)})
			}
		}
	}
	return out
}

// Check judges the bindings of a round, and counts those that might have come too early: to nodes that were closed
// once.
func Check(r history.Record) (found []history.Violation, tried int) {
	var writes []Write
	for i := range r.Events {
		w, is := Of(r.Events[i].Revision, r.Events[i].Object, r.Events[i].Deleted)
		if is {
			writes = append(writes, w)
		}
	}
	writes = InOrder(writes)
	for _, f := range Early(writes) {
		found = append(found, history.Violation{
			Rule: Bound, Revision: f.Revision, Objects: []types.UID{f.Object}, Message: f.Text,
		})
	}
	return found, Tried(writes)
}

// Tried counts the ordinary pods that got a node which had been closed before.
func Tried(writes []Write) (n int) {
	closed, pods := map[string]bool{}, map[types.UID]bool{}
	for i := range writes {
		switch w := &writes[i]; {
		case w.Node != nil:
			closed[w.Node.Name] = closed[w.Node.Name] || w.Node.Closed
		case w.Pod.Node != "" && closed[w.Pod.Node] && !w.Pod.Tolerates && !pods[w.Pod.UID]:
			pods[w.Pod.UID] = true
			n++
		}
	}
	return n
}
