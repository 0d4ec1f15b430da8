package admit

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestWhoseRolloutIsMissed: only where some pods may have another revision than others.
func TestWhoseRolloutIsMissed(t *testing.T) {
	const neither, selected, both = 0, 1, 2
	for name, c := range map[string]struct {
		reason     string
		generation int64
		has        int
	}{
		"it is new":                              {"", 1, neither},
		"it is new, and the controller has seen": {NotSeen, 1, neither},
		"it has changed since it was made":       {"", 2, selected},
		"it has changed, which nobody has seen":  {NotSeen, 2, selected},
		"a change was under way":                 {string(v1alpha1.PhaseSoaking), 1, both},
		"a change was under way, and hindered":   {NotAsked, 1, both},
		"it had failed":                          {string(v1alpha1.PhaseRolledBack), 1, both},
		"all was done":                           {string(v1alpha1.PhaseComplete), 1, selected},
	} {
		ds := &appsv1.DaemonSet{}
		ds.Generation = c.generation
		ds.Status.Conditions = []appsv1.DaemonSetCondition{{Type: "Other", Reason: "Soaking"}}
		if c.reason != "" {
			is := appsv1.DaemonSetCondition{Type: v1alpha1.RolloutReconciling, Reason: c.reason}
			ds.Status.Conditions = append(ds.Status.Conditions, is)
		}
		for _, is := range []bool{false, true} {
			want := c.has == both || c.has == selected && is
			if got := HasRun(ds, is); got != want {
				t.Errorf("%s, and a policy selects it: %v: its rollout is missed: %v", name, is, got)
			}
		}
	}
}

// TestNobodyWaitsForARolloutForEver: as long as another one may come to lead a pod waits, and then it is unknown.
func TestNobodyWaitsForARolloutForEver(t *testing.T) {
	for _, c := range []struct {
		selected bool
		lacking  time.Duration
		want     Verb
	}{
		{true, 0, Later}, {false, 0, Later}, {true, WaitsForRollout - 1, Later},
		{true, WaitsForRollout, Unknown}, {false, WaitsForRollout, AsMade},
	} {
		if got := Unwritten(c.selected, c.lacking); got.Verb != c.want || got.Why == "" {
			t.Errorf("without a rollout for %s, and with a policy: %v: %+v", c.lacking, c.selected, got)
		}
	}
}
