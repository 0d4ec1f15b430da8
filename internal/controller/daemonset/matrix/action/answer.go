package action

import (
	"k8s.io/apimachinery/pkg/types"
)

// Answer brings back what became of an action.
type Answer struct {
	Action  Action `json:"-"`
	Outcome Outcome
	// Pod is the UID of the pod that a creation has made, or found made.
	Pod types.UID `json:",omitempty"`
	// Refused is what the API said to a creation that it refused for good, or why a pod cannot be pointed at a
	// content, or be resized.
	Refused string `json:",omitempty"`
}

// Verb is the event's word in scripts.
func (Answer) Verb() string { return "done" }
