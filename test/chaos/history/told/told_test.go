package told

import (
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestNothingUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		phase          v1alpha1.Phase
		stable, target string
		want           bool
	}{
		"it has reached all nodes":          {v1alpha1.PhaseComplete, "a", "a", true},
		"there was no node for it":          {v1alpha1.PhaseComplete, "", "a", true},
		"a first revision is on its way":    {v1alpha1.PhaseProgressing, "", "a", false},
		"no node was there for a later one": {v1alpha1.PhaseComplete, "a", "b", false},
		"a change is on its way":            {v1alpha1.PhaseSoaking, "a", "b", false},
	} {
		s := v1alpha1.DaemonSetRolloutStatus{Phase: c.phase, StableRevision: c.stable, TargetRevision: c.target}
		if got := NothingUnderWay(&s); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
