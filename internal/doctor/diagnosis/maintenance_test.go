package diagnosis

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whoever forgets to end the maintenance of a node keeps changes off it: after a day that is said, by condition.
func TestNodesThatStayInMaintenance(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	node := func(name string, ago time.Duration, conditions ...corev1.NodeConditionType) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, c := range conditions {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: c, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))})
		}
		return n
	}
	timeless := node("timeless", 0, corev1.NodeDrained)
	timeless.Status.Conditions[0].LastTransitionTime = metav1.Time{}
	over := node("over", 90*time.Hour, corev1.NodeDrained)
	over.Status.Conditions[0].Status = corev1.ConditionFalse
	f := &findings{}
	nodes(f, &Cluster{Now: now, Kubectl: "kubectl", Nodes: []*corev1.Node{
		node("b", 25*time.Hour, corev1.NodeDrained), node("a", 72*time.Hour, corev1.NodeDrained, corev1.NodeMaintenanceInProgress),
		node("new", 24*time.Hour, corev1.NodeDrainInProgress), timeless, over,
		node("planned", 90*time.Hour, corev1.NodeMaintenancePlanned),
		node("down", 30*time.Hour, corev1.NodeGracefulNodeShutdownInProgress),
		node("drains", 48*time.Hour, corev1.NodeDrainInProgress),
	}})
	const and = ", and no change of a RolloutPolicy begins there: "
	want := []string{
		"warning node/drains kubectl describe node drains: 1 node has been in maintenance (DrainInProgress) for more than a day, the first for 2 days" + and + "drains",
		"warning nodes kubectl describe node a: 2 nodes have been in maintenance (Drained) for more than a day, the first for 3 days" + and + "a, b",
		"warning node/down kubectl describe node down: 1 node has been in maintenance (GracefulNodeShutdownInProgress) for more than a day, the first for 30 h" + and + "down",
		"warning node/a kubectl describe node a: 1 node has been in maintenance (MaintenanceInProgress) for more than a day, the first for 3 days" + and + "a",
	}
	var got []string
	for _, i := range f.all {
		got = append(got, strings.ToLower(string(i.Severity))+" "+i.Subject+" "+i.Remedy+": "+i.Message)
	}
	if !slices.Equal(got, want) {
		t.Errorf("it finds\n%q\nwant\n%q", got, want)
	}
}
