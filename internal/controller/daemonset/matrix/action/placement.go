package action

import (
	"fmt"
)

// FailedPlacement says that a selected node cannot take its pod. It is for
// people, and no outcome is expected.
type FailedPlacement struct {
	Target
	Node, PodName string
	// Detail is what the scheduler says about the node.
	Detail string
}

// Why is the reason for the action.
func (a *FailedPlacement) Why() Reason { return ReasonUnplaceable }

func (a *FailedPlacement) String() string {
	return fmt.Sprintf("unplaceable %s/%s pod=%s (%s)", a.Name, a.Node, a.PodName, a.Detail)
}
