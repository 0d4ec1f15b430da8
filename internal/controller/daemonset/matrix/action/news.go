package action

import (
	"fmt"
)

// RolloutNews is for people: where a rollout has come to. No outcome is expected.
type RolloutNews struct {
	Target
	// Warning tells that somebody should look.
	Warning bool
	// Event is the reason that the event carries.
	Event, Message string
}

// Why is the reason for the action.
func (a *RolloutNews) Why() Reason { return ReasonNews }

func (a *RolloutNews) String() string {
	return fmt.Sprintf("tell %s %s: %s", a.Name, a.Event, a.Message)
}
