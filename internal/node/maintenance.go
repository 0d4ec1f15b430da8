package node

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// underWay are the conditions by which somebody, or the node itself, says that it is being worked on. The first that
// is true is the one that people are told of. One that says that such work is planned is none of them: the node is as
// good as any other until then.
var underWay = []corev1.NodeConditionType{
	corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained,
	corev1.NodeGracefulNodeShutdownInProgress,
}

// longest is how many bytes are said of a condition: anybody may have written it.
const longest = 1024

// Maintenances are the conditions by which the node is in maintenance, the one that people are told of first.
func Maintenances(n *corev1.Node) (out []*corev1.NodeCondition) {
	for _, t := range underWay {
		if c := Condition(n, t); c != nil && c.Status == corev1.ConditionTrue {
			out = append(out, c)
		}
	}
	return out
}

// Maintenance says that the node is in maintenance; "" if it is not.
func Maintenance(n *corev1.Node) string {
	all := Maintenances(n)
	if len(all) == 0 {
		return ""
	}
	return SayMaintenance(all[0])
}

// AboutMaintenance says all that the node's conditions do about maintenance, also that it is planned.
func AboutMaintenance(n *corev1.Node) (out []string) {
	for _, c := range Maintenances(n) {
		out = append(out, SayMaintenance(c))
	}
	if c := Condition(n, corev1.NodeMaintenancePlanned); c != nil && c.Status == corev1.ConditionTrue {
		out = append(out, "maintenance is planned: "+said(c))
	}
	return out
}

// longMaintenance is how long a node may be in maintenance before somebody should look whether it still is.
const longMaintenance = 24 * time.Hour

// LongMaintenances are the conditions by which the node has been in maintenance for so long that whoever began it may
// have forgotten to end it. Of one without a time nobody knows.
func LongMaintenances(n *corev1.Node, now time.Time) (out []*corev1.NodeCondition) {
	for _, c := range Maintenances(n) {
		if at := c.LastTransitionTime.Time; !at.IsZero() && now.Sub(at) > longMaintenance {
			out = append(out, c)
		}
	}
	return out
}

// SayMaintenance says of a node that it is in maintenance by that condition.
func SayMaintenance(c *corev1.NodeCondition) string { return "in maintenance: " + said(c) }

// said is a condition in words: what it is, since when, and what whoever wrote it says.
func said(c *corev1.NodeCondition) string {
	text := string(c.Type)
	if !c.LastTransitionTime.IsZero() {
		text += " since " + c.LastTransitionTime.UTC().Format("2006-01-02 15:04 UTC")
	}
	switch says := cmp.Or(c.Reason, c.Message); {
	case says == "":
	case c.Reason != "" && c.Message != "":
		text += ", says " + c.Reason + ": " + c.Message
	default:
		text += ", says " + says
	}
	return plaintext.Cut(text, longest, "…")
}
