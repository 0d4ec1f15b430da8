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

// The conditions that a NodeStartup has beside another DaemonSet controller only.
const (
	// DaemonSetsTolerate is False while a listed DaemonSet's own template does not tolerate the taint.
	DaemonSetsTolerate = "DaemonSetsTolerate"
	// NodesClosed is False while there are nodes that stayed open and were to be closed.
	NodesClosed = "NodesClosed"
	// Ordered is False where there are several groups, because all of them start at once.
	Ordered = "Ordered"
)

// Beside reports whether a NodeStartup is followed beside another DaemonSet controller, by what that has written.
func Beside(s *v1alpha1.NodeStartup) bool {
	return meta.FindStatusCondition(s.Status.Conditions, Ordered) != nil
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

// Due is what is to be written on a node beside another DaemonSet controller. The zero value is nothing.
type Due struct {
	// Mark is what is noted; empty for nothing.
	Mark nodestartup.Mark
	// Gate closes the node; nil leaves it as it is.
	Gate *corev1.Taint
	// NotClosed says why the node stays open that was to be closed; "" if nothing of the kind is to be said.
	NotClosed string
}

// Look says what is due on a node that first, the NodeStartup which it follows, chooses; nil if none does. The
// standings are those of its DaemonSets.
//
// A node that the webhook was not asked about stays open. One whose machine has started again is closed: nobody may
// change a taint by the report that says so.
func Look(n *corev1.Node, first *v1alpha1.NodeStartup, standing func(types.NamespacedName) Standing,
	now time.Time) Due {
	if first == nil {
		return Due{}
	}
	is := nodestartup.Mark{Startup: first.UID, BootID: n.Status.NodeInfo.BootID}
	was, marked := nodestartup.MarkOf(n)
	closed := nodestartup.TaintOf(n.Spec.Taints) != nil
	switch {
	case !marked && !closed && !n.CreationTimestamp.Before(&first.CreationTimestamp):
		return Due{Mark: is, NotClosed: "NodeStartup " + first.Name + " chooses it, and no webhook of Everynode answered " +
			"when it was created"}
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
	return Due{Mark: is, Gate: nodestartup.Gate(nodestartup.Place{Startup: first.Name, Group: 1}, first.Spec.Gate, now)}
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

// beside are the conditions that there are beside another DaemonSet controller only.
func (c *count) beside(s *v1alpha1.NodeStartup, standing func(types.NamespacedName) Standing) []metav1.Condition {
	tolerate := metav1.Condition{Type: DaemonSetsTolerate, Status: metav1.ConditionTrue, Reason: "Tolerated",
		Message: "no listed DaemonSet keeps nodes from being closed"}
	if lacking := Lacking(s, standing); len(lacking) > 0 {
		tolerate.Status, tolerate.Reason = metav1.ConditionFalse, "NotTolerated"
		tolerate.Message = BarredBy(s.Name, lacking) + ": its pods would never come there. Add {key: " +
			nodestartup.TaintKey + ", operator: Exists, effect: NoSchedule} to its tolerations"
	}
	closed := metav1.Condition{Type: NodesClosed, Status: metav1.ConditionTrue, Reason: "Closed",
		Message: "no node stayed open that was to be closed"}
	if c.open.count > 0 {
		closed.Status, closed.Reason = metav1.ConditionFalse, "NotClosed"
		closed.Message = fmt.Sprintf("nodes that stayed open and were to be closed: %d; %s: %s. Once that has been looked "+
			"at: kubectl annotate node %s %s-", c.open.count, c.open.first, c.open.about, c.open.first,
			nodestartup.NotClosedAnnotation)
	}
	ordered := metav1.Condition{Type: Ordered, Status: metav1.ConditionTrue, Reason: "OneGroup",
		Message: "there is one group only"}
	if len(s.Spec.Groups) > 1 {
		ordered.Status, ordered.Reason = metav1.ConditionFalse, "Beside"
		ordered.Message = "the daemons of all groups start at once, because another controller makes the pods; a node " +
			"opens when those of all groups are available"
	}
	return []metav1.Condition{tolerate, closed, ordered}
}
