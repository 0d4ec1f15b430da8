package rollouts

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
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

// Who deletes a rollout in the middle of a change, while nobody can read policies or after its policy was deleted, has
// nothing go on by that when there is a policy again.
func TestARolloutThatIsDeletedWhileNoPolicyIsSeen(t *testing.T) {
	status := v1alpha1.DaemonSetRolloutStatus{
		Phase: v1alpha1.PhaseWaitingForApproval, StableRevision: "a", TargetRevision: "b",
	}
	for name, unseen := range map[string]func(w *world){
		"policies cannot be read": func(w *world) { w.Step(Sight{Policies: "may not list"}) },
		"its policy was deleted": func(w *world) {
			p := w.policy(t, "first", "")
			w.Step(Policy{Object: p, Gone: true})
		},
	} {
		w := newWorld()
		w.rows.statuses["u1"] = status
		w.daemonSet("logs", "u1", follows)
		r := w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{})
		unseen(w)
		w.Step(Rollout{Object: r, Gone: true})
		if told := w.rows.told["u1"]; told.Following == course.Followed {
			t.Errorf("%s: it goes on at once: %+v", name, told)
		}
		w.Step(Sight{})
		w.policy(t, "next", "")
		why := "its DaemonSetRollout was deleted while it was WaitingForApproval;"
		if told := w.rows.told["u1"]; !told.Spec.Paused || !strings.HasPrefix(told.PausedWhy, why) {
			t.Errorf("%s: with a policy it is told paused %v because %q", name, told.Spec.Paused, told.PausedWhy)
		}
	}
}
