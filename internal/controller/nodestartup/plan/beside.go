package plan

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// The conditions that a NodeStartup has on an API server of others only: the first two beside another DaemonSet
// controller, the others also in place of it.
const (
	// DaemonSetsTolerate is False while a listed DaemonSet's own template does not tolerate the taint.
	DaemonSetsTolerate = "DaemonSetsTolerate"
	// Ordered is False where there are several groups, because all of them start at once.
	Ordered = "Ordered"
	// NodesClosed is False while there are nodes that stayed open and were to be closed.
	NodesClosed = "NodesClosed"
	// RoomKept is False where ordinary pods may take the room of daemons that are to come.
	RoomKept = "RoomKept"
)

// Setting is whose the API server is, and who makes the pods of DaemonSets.
type Setting uint8

// The settings.
const (
	// Home is our own API server, which closes nodes by itself.
	Home Setting = iota
	// InPlace is an API server of others, of which our DaemonSet controller makes the pods.
	InPlace
	// NextTo is beside another DaemonSet controller, which goes by the templates alone.
	NextTo
)

// Beside reports whether a NodeStartup is followed beside another DaemonSet controller, by what that has written.
func Beside(s *v1alpha1.NodeStartup) bool { return SettingOf(s) == NextTo }

// SettingOf is where a NodeStartup is followed, by what was written about it.
func SettingOf(s *v1alpha1.NodeStartup) Setting {
	switch {
	case meta.FindStatusCondition(s.Status.Conditions, Ordered) != nil:
		return NextTo
	case meta.FindStatusCondition(s.Status.Conditions, NodesClosed) != nil:
		return InPlace
	}
	return Home
}

// Standing is how a DaemonSet is, whatever the node.
type Standing uint8

// The standings. Barred has pods that do not tolerate the taint, where nobody adds that.
const (
	Missing Standing = iota
	Found
	Barred
)

// StandingOf is how a DaemonSet is, nil for none, where nobody adds the toleration to its pods.
func StandingOf(ds *appsv1.DaemonSet) Standing {
	switch {
	case ds == nil || ds.DeletionTimestamp != nil:
		return Missing
	case !nodestartup.Tolerated(&ds.Spec.Template.Spec):
		return Barred
	}
	return Found
}

// Due is what is to be written on a node of an API server of others. The zero value is nothing.
type Due struct {
	// Mark is what is noted; empty for nothing.
	Mark nodestartup.Mark
	// Gate closes the node; nil leaves it as it is. While is the taint that keeps ordinary pods off a node that joins:
	// it is closed only while it has that. Nil for one whose machine has started again.
	Gate, While *corev1.Taint
	// NotClosed says why the node stays open that was to be closed; "" if nothing of the kind is to be said.
	NotClosed string
}

// Look says what is due on a node that first, the NodeStartup which it follows, chooses; nil if none does. The
// standings are those of its DaemonSets.
//
// Beside another controller a node that the webhook was not asked about stays open; in place of it one that takes pods
// already. One whose machine has started again is closed: nobody may change a taint by the report that says so.
func Look(n *corev1.Node, first *v1alpha1.NodeStartup, standing func(types.NamespacedName) Standing, in Setting,
	now time.Time) Due {
	was, marked := nodestartup.MarkOf(n)
	is := nodestartup.Mark{BootID: n.Status.NodeInfo.BootID}
	switch {
	case first == nil && in == InPlace && !marked:
		return Due{Mark: is} // whom labels choose that it gets later on is none that joins
	case first == nil:
		return Due{}
	}
	is.Startup = first.UID
	closed := nodestartup.TaintOf(n.Spec.Taints) != nil
	switch {
	case !marked && !closed && !n.CreationTimestamp.Before(&first.CreationTimestamp):
		return joins(n, first, is, in, now)
	case marked && was == (nodestartup.Mark{}): // the webhook has said why, if it stayed open
		return Due{Mark: is, NotClosed: n.Annotations[nodestartup.NotClosedAnnotation]}
	case !marked, was.Startup != is.Startup, was.BootID == "" && is.BootID != "":
		return Due{Mark: is}
	case is.BootID == "" || was == is:
		return Due{}
	}
	if lacking := Lacking(first, standing); len(lacking) > 0 {
		return Due{Mark: is, NotClosed: "its machine has started again, and " + BarredBy(first.Name, lacking)}
	}
	return Due{Mark: is, Gate: begin(first, now)}
}

// begin is the gate of a node that starts now.
func begin(s *v1alpha1.NodeStartup, now time.Time) *corev1.Taint {
	return nodestartup.Gate(nodestartup.Place{Startup: s.Name, Group: 1}, s.Spec.Gate, now)
}

// joins is for a node that has joined, and that nobody has dealt with.
func joins(n *corev1.Node, first *v1alpha1.NodeStartup, is nodestartup.Mark, in Setting, now time.Time) Due {
	why := "no webhook of Everynode answered when it was created"
	if in == InPlace {
		if while := keepsOff(n); while != nil {
			return Due{Mark: is, Gate: begin(first, now), While: while}
		}
		why = "it was ready before a controller had closed it"
	}
	return Due{Mark: is, NotClosed: "NodeStartup " + first.Name + " chooses it, and " + why}
}

// keepsOff is the taint that keeps ordinary pods off a node which is not ready yet: the API server adds it to each Node
// that is created. Nil if there is none.
func keepsOff(n *corev1.Node) *corev1.Taint {
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule {
			return t
		}
	}
	return nil
}

// Lacking are the DaemonSets of a NodeStartup that keep it from closing nodes. Without a gate none does.
func Lacking(s *v1alpha1.NodeStartup, standing func(types.NamespacedName) Standing) (out []types.NamespacedName) {
	if s.Spec.Gate == v1alpha1.GateNone {
		return nil
	}
	return barred(s, func(name types.NamespacedName) Daemon { return Daemon{Barred: standing(name) == Barred} })
}

// BarredBy says that a NodeStartup closes no node because of these DaemonSets.
func BarredBy(startup string, lacking []types.NamespacedName) string {
	return fmt.Sprintf("NodeStartup %s closes no node while the template of %s does not tolerate the taint %s", startup,
		few(lacking), nodestartup.TaintKey)
}

// few lists the first names.
func few(names []types.NamespacedName) string {
	waits := make([]Wait, 0, len(names))
	for _, name := range names {
		waits = append(waits, Wait{DaemonSet: name})
	}
	return strings.ReplaceAll(Names(waits), ";", ",")
}

// elsewhere are the conditions that there are on an API server of others only.
func (c *count) elsewhere(s *v1alpha1.NodeStartup, in Setting,
	standing func(types.NamespacedName) Standing) []metav1.Condition {
	if in == Home {
		return nil
	}
	room := metav1.Condition{Type: RoomKept, Status: metav1.ConditionTrue, Reason: "Closed",
		Message: "the taint keeps ordinary pods off nodes that start"}
	if s.Spec.Gate == v1alpha1.GateNone {
		room.Status, room.Reason = metav1.ConditionFalse, "NotKept"
		room.Message = "ordinary pods may take the room of daemons that are to come: with gate None nothing keeps them " +
			"off, and the cluster's scheduler knows nothing of these daemons"
	}
	all := []metav1.Condition{c.closed(), room}
	if in == NextTo {
		all = append(all, tolerate(s, standing), ordered(s))
	}
	return all
}

// closed says whether all nodes were closed that were to be.
func (c *count) closed() metav1.Condition {
	if c.open.count == 0 {
		return metav1.Condition{Type: NodesClosed, Status: metav1.ConditionTrue, Reason: "Closed",
			Message: "no node stayed open that was to be closed"}
	}
	return metav1.Condition{Type: NodesClosed, Status: metav1.ConditionFalse, Reason: "NotClosed",
		Message: fmt.Sprintf("nodes that stayed open and were to be closed: %d; %s: %s. Once that has been looked "+
			"at: kubectl annotate node %s %s-", c.open.count, c.open.first, c.open.about, c.open.first,
			nodestartup.NotClosedAnnotation)}
}

// tolerate says whether the daemons can come to closed nodes.
func tolerate(s *v1alpha1.NodeStartup, standing func(types.NamespacedName) Standing) metav1.Condition {
	tolerate := metav1.Condition{Type: DaemonSetsTolerate, Status: metav1.ConditionTrue, Reason: "Tolerated",
		Message: "no listed DaemonSet keeps nodes from being closed"}
	if lacking := Lacking(s, standing); len(lacking) > 0 {
		tolerate.Status, tolerate.Reason = metav1.ConditionFalse, "NotTolerated"
		tolerate.Message = BarredBy(s.Name, lacking) + ": its pods would never come there. Add {key: " +
			nodestartup.TaintKey + ", operator: Exists, effect: NoSchedule} to its tolerations"
	}
	return tolerate
}

// ordered says whether groups start one after the other.
func ordered(s *v1alpha1.NodeStartup) metav1.Condition {
	if len(s.Spec.Groups) < 2 {
		return metav1.Condition{Type: Ordered, Status: metav1.ConditionTrue, Reason: "OneGroup",
			Message: "there is one group only"}
	}
	return metav1.Condition{Type: Ordered, Status: metav1.ConditionFalse, Reason: "Beside",
		Message: "the daemons of all groups start at once, because another controller makes the pods; a node " +
			"opens when those of all groups are available"}
}
