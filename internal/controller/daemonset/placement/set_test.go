package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSet(t *testing.T) {
	silent := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	dedicated := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	ssd := Compile(&corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}})
	s := Set{Newest: "new", Rules: ssd, Earlier: &Revisions{ByRevision: map[string]*Rules{"old": Compile(&corev1.PodSpec{})}}}
	for _, tc := range []struct {
		name, revision string
		node           *corev1.Node
		occupied       bool
		want           Eligibility
		selects        bool
	}{
		{"the newest leaves it out", "new", nodeWith(nil), true, ShouldNotRun, false},
		{"an earlier one wants it", "old", nodeWith(nil), false, ShouldRun, true},
		{"of one that cannot be read pods stay", "gone", nodeWith(nil), true, ShouldContinueRunning, true},
		{"of one that cannot be read nothing starts where the newest does not", "gone", nodeWith(nil), false, ShouldNotRun, false},
		{"of one that cannot be read the newest's rules stand in", "gone", nodeWith(map[string]string{"disk": "ssd"}), false, ShouldRun, true},
		{"of one that cannot be read a pod that the newest wants too counts", "gone", nodeWith(map[string]string{"disk": "ssd"}), true, ShouldRun, true},
		{"silent, with a pod", "old", nodeWith(nil, silent), true, ShouldContinueRunning, true},
		{"silent, without", "old", nodeWith(nil, silent), false, ShouldContinueRunning, false},
		{"silent, and for others", "old", nodeWith(nil, silent, dedicated), true, ShouldContinueRunning, false},
		{"there is no such node", "old", nil, true, ShouldNotRun, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := s.Eligible(tc.revision, tc.node, tc.occupied); got != tc.want {
				t.Errorf("node %s, want it %s", got, tc.want)
			}
			if got := s.Selects(tc.revision, tc.node, tc.occupied); got != tc.selects {
				t.Errorf("selected: %t, want %t", got, tc.selects)
			}
		})
	}
	if s.Of("new") != ssd || s.Of("gone") != nil {
		t.Error("the rules of a revision are another's")
	}
}
