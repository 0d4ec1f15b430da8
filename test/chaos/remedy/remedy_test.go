package remedy

import (
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

// What a rollout asks for is done: it has that afterwards, and asks for nothing else.
func TestWhatIsAskedForIsDone(t *testing.T) {
	for want, c := range map[string]struct {
		phase   v1alpha1.Phase
		message string
		paused  bool
		done    func(*v1alpha1.DaemonSetRolloutSpec) bool
	}{
		"resume": {v1alpha1.PhasePaused, "paused by a person", true,
			func(s *v1alpha1.DaemonSetRolloutSpec) bool { return !s.Paused }},
		"retry": {v1alpha1.PhaseHalted, "revision t failed", false,
			func(s *v1alpha1.DaemonSetRolloutSpec) bool { return s.Retry != nil && s.Retry.Count == 3 }},
		"approve": {v1alpha1.PhaseWaitingForApproval, "step canary waits for approval", false,
			func(s *v1alpha1.DaemonSetRolloutSpec) bool { return s.Approved.Step == v1alpha1.AllSteps }},
		"retry and approve": {v1alpha1.PhasePaused, "make a policy, or retry it and approve step WithoutPolicy", false,
			func(s *v1alpha1.DaemonSetRolloutSpec) bool {
				return s.Approved.Step == v1alpha1.WithoutPolicy && s.Retry != nil
			}},
		"": {v1alpha1.PhaseProgressing, "step canary: 1 of 2 nodes done", false,
			func(s *v1alpha1.DaemonSetRolloutSpec) bool { return *s == v1alpha1.DaemonSetRolloutSpec{} }},
	} {
		r := &v1alpha1.DaemonSetRollout{}
		r.Spec.Paused = c.paused
		r.Status.TargetRevision, r.Status.Phase, r.Status.Message = "t", c.phase, c.message
		r.Status.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "t", Retries: 2}}
		if got := Apply(r); got != want || !c.done(&r.Spec) {
			t.Errorf("%s: %q was done, want %q: %+v", c.message, got, want, r.Spec)
		}
	}
}

// The way back to a revision that is gone is asked for by another try; a node that cannot have one asks for room.
func TestLostRevisions(t *testing.T) {
	r := &v1alpha1.DaemonSetRollout{}
	r.Status.Phase = v1alpha1.PhasePaused
	r.Status.Message = "nothing goes back to revision s: its ControllerRevision is gone or cannot be read"
	if got := Apply(r); got != "retry" || NeedsRoom(r) {
		t.Errorf("%q was done, room is asked for: %t", got, NeedsRoom(r))
	}
	r.Status.Message = "such as n (it has no daemon, and none can be made: revision s is gone or cannot be read)"
	if !NeedsRoom(r) {
		t.Error("no room is asked for")
	}
}
