package v1alpha1

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ContentStatus is the content of a target. No value of any object is in it.
type ContentStatus struct {
	// Stable is the content of the stable revision; "" if it has none.
	// +optional
	Stable string `json:"stable,omitempty"`
	// Target is the target's.
	// +optional
	Target string `json:"target,omitempty"`
	// Changes are the keys in which the target's content differs from the stable one's, such as
	// "ConfigMap agent: agent.conf"; at most 20 lines.
	// +optional
	// +listType=atomic
	Changes []string `json:"changes,omitempty"`
	// Message says why the content cannot be followed; "" if it is.
	// +optional
	Message string `json:"message,omitempty"`
	// Restarts says why pods are replaced though the policy says Live; "" where they stay, or it does not.
	// +optional
	Restarts string `json:"restarts,omitempty"`
	// Overtaken is how many times in a row the content has become another before the one before was everywhere.
	// +optional
	Overtaken int32 `json:"overtaken,omitempty"`
	// OvertakenSince is when that began.
	// +optional
	OvertakenSince *metav1.Time `json:"overtakenSince,omitempty"`
	// Kept tells that content is no part of revisions any more, and that copies of it are still there. They go when no
	// pod has referred to them for a while.
	// +optional
	Kept bool `json:"kept,omitempty"`
	// Preparing tells that neither revision has content yet, and that copies for the newest one are being made. It is
	// written before the first copy, so that copies are found whatever happens then.
	// +optional
	Preparing bool `json:"preparing,omitempty"`
	// Leftover says why copies stay that nobody needs any more, and what to do; "" where none does.
	// +optional
	Leftover string `json:"leftover,omitempty"`
}

// OvertakenOften is how many times content must have been overtaken for people to be told.
const OvertakenOften = 3

// Lines says for people what changes, and what hinders it.
func (c *ContentStatus) Lines() (out []string) {
	if c == nil {
		return nil
	}
	for _, change := range c.Changes {
		out = append(out, "content: "+change)
	}
	if c.Restarts != "" {
		out = append(out, "content replaces pods: "+c.Restarts)
	}
	if c.Message != "" {
		out = append(out, "content cannot be followed: "+c.Message)
	}
	if c.Overtaken >= OvertakenOften && c.OvertakenSince != nil {
		out = append(out, fmt.Sprintf("content changes faster than it can travel: %d times since %s before it was everywhere",
			c.Overtaken, c.OvertakenSince.UTC().Format(time.RFC3339)))
	}
	if c.Preparing {
		out = append(out, "copies of the content are being made")
	}
	switch {
	case c.Leftover != "":
		out = append(out, "copies of content stay: "+c.Leftover)
	case c.Kept:
		out = append(out, "content is off, and copies are still there; "+
			"they go two minutes after the last pod that refers to them")
	}
	return out
}
