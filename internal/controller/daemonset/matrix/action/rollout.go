package action

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// UpdateRollout asks for a rollout's status to be written, and for the rollout to be
// made if there is none.
type UpdateRollout struct {
	Target
	// Status is without conditions.
	Status v1alpha1.DaemonSetRolloutStatus
	// PausedWhy is the info's, for a rollout that is to be made.
	PausedWhy string `json:",omitempty"`
	// Failing counts the failures of the target by their reason.
	Failing map[standing.Reason]int `json:",omitempty"`
}

// Why is the reason for the action.
func (a *UpdateRollout) Why() Reason { return ReasonStatus }

func (a *UpdateRollout) String() string {
	s := &a.Status
	text := "rollout " + a.Name + " " + string(s.Phase) + " stable=" + s.StableRevision + " target=" + s.TargetRevision
	if s.Step != "" {
		text += " step=" + s.Step
	}
	return text + " (" + s.Message + ")"
}
