package row

import (
	"fmt"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// news tells what is new in the status, once.
func (r *Row) news(out []action.Action, is *v1alpha1.DaemonSetRolloutStatus) []action.Action {
	was := r.guide.told
	r.guide.told = *is
	say := func(warning bool, event, format string, args ...any) {
		out = append(out, &action.RolloutNews{Target: r.target(), Warning: warning, Event: event,
			Message: fmt.Sprintf(format, args...)})
	}
	moves := is.TargetRevision != is.StableRevision
	if is.TargetRevision != was.TargetRevision && moves && is.StableRevision != "" {
		say(false, "RolloutStarted", "revision %s is on its way to %s; stable is %s", is.TargetRevision,
			nodes(countNodes(is)), is.StableRevision)
	}
	if is.Step != was.Step && is.Step != "" {
		say(false, "RolloutStepOpened", "step %s has begun: %s", is.Step, nodes(nodesOfStep(is)))
	}
	if is.Phase != was.Phase || is.TargetRevision != was.TargetRevision {
		r.phaseNews(say, is, was.Phase == "")
	}
	return out
}

// phaseNews tells what the rollout does now; begins says that it has just begun to do anything.
func (r *Row) phaseNews(say func(warning bool, event, format string, args ...any), is *v1alpha1.DaemonSetRolloutStatus,
	begins bool) {
	how := "daemonset/" + r.info.Name
	until := "until the template changes, or everynode rollout retry " + how
	switch is.Phase {
	case v1alpha1.PhaseComplete:
		if !begins {
			say(false, "RolloutComplete", "%s", is.Message)
		}
	case v1alpha1.PhaseSoaking:
		say(false, "RolloutSoaking", "%s", is.Message)
	case v1alpha1.PhaseWaitingForApproval:
		say(false, "RolloutWaitsForApproval", "%s: everynode rollout approve %s", is.Message, how)
	case v1alpha1.PhaseOutsideWindow:
		say(false, "RolloutOutsideWindow", "%s", is.Message)
	case v1alpha1.PhasePaused:
		say(true, "RolloutPaused", "%s", is.Message)
	case v1alpha1.PhaseHalted:
		say(true, "RolloutHalted", "%s; all nodes stay as they are %s", is.Message, until)
	case v1alpha1.PhaseRolledBack:
		say(true, "RolloutRolledBack", "%s; all nodes go back to revision %s %s", is.Message, is.StableRevision, until)
	}
}

func nodes(n int32) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func countNodes(s *v1alpha1.DaemonSetRolloutStatus) (n int32) {
	for i := range s.Steps {
		n += s.Steps[i].Nodes
	}
	return n
}

func nodesOfStep(s *v1alpha1.DaemonSetRolloutStatus) int32 {
	for i := range s.Steps {
		if s.Steps[i].Name == s.Step {
			return s.Steps[i].Nodes
		}
	}
	return 0
}
