package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func maintained(n *corev1.Node) {
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue})
}

// With a policy nodes that somebody works on wait for the end of that, and hold up no other; without one they change.
func TestPlanOfNodesInMaintenance(t *testing.T) {
	for _, policy := range []string{waves, ""} {
		w, ds := cluster(t)
		if policy != "" {
			w.Policy("careful", policy)
		}
		for _, name := range []int{2, 4, 6, 8} {
			maintained(w.Objects.Nodes[name])
		}
		next := edited(ds, newer)
		f := forecast(t, w, ds, next)
		change, in := 5, 4
		if policy == "" {
			change, in = 9, 0
		}
		if f.Nodes.Change != change || f.Nodes.InMaintenance != in || f.Nodes.OutOfOrder != 1 {
			t.Errorf("policy %q: %s", policy, f.Nodes)
		}
		if says := strings.Contains(f.Nodes.String(), "4 in maintenance"); says != (in > 0) {
			t.Errorf("policy %q: it says %q", policy, f.Nodes)
		}
		next.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "b"} // those in maintenance are to lose theirs
		if f := forecast(t, w, ds, next); policy != "" && (f.Nodes.InMaintenance != in || f.Nodes.Leave != 1) {
			t.Errorf("it selects others: %s", f.Nodes)
		}
	}
}
