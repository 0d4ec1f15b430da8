package rollouts

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// TestWhichConditionTellsOfARollout: our own one where we write the status, another one beside another controller.
func TestWhichConditionTellsOfARollout(t *testing.T) {
	for _, c := range []struct {
		guest   bool
		kind    appsv1.DaemonSetConditionType
		reason  string
		phase   string
		follows bool
	}{
		{false, fact.ConditionProgressing, fact.FollowsPolicy + "Halted", "Halted", true},
		{false, fact.ConditionProgressing, fact.NotStored, "", false},
		{false, v1alpha1.RolloutReconciling, "Halted", "", false},
		{true, v1alpha1.RolloutReconciling, "Halted", "Halted", true},
		{true, v1alpha1.RolloutReconciling, admit.NotAsked, admit.NotAsked, true},
		{true, v1alpha1.RolloutReconciling, admit.NotSeen, "", false},
		{true, v1alpha1.RolloutStalled, "Halted", "", false},
	} {
		b := &Book{Guest: c.guest}
		phase, follows := b.phaseIn(&appsv1.DaemonSetCondition{Type: c.kind, Reason: c.reason})
		if follows != c.follows || follows && phase != c.phase {
			t.Errorf("as a guest %v: %s %s tells of %q, %v", c.guest, c.kind, c.reason, phase, follows)
		}
	}
}
