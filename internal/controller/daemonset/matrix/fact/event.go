package fact

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// What is gone, by UID or name.
type (
	// DaemonSetGone drops a row. Its pods stay known, in case it comes back.
	DaemonSetGone types.UID
	// NodeGone drops a column. Cells with pods outlive it.
	NodeGone string
	// PodGone forgets a pod.
	PodGone types.UID
)

// Now says what time it is. Time does not go back.
type Now struct{ time.Time }

// Verb is the event's word in scripts.
func (DaemonSet) Verb() string { return "daemonset" }

// Verb is the event's word in scripts.
func (Node) Verb() string { return "node" }

// Verb is the event's word in scripts.
func (Pod) Verb() string { return "pod" }

// Verb is the event's word in scripts.
func (DaemonSetGone) Verb() string { return "delete-daemonset" }

// Verb is the event's word in scripts.
func (NodeGone) Verb() string { return "delete-node" }

// Verb is the event's word in scripts.
func (PodGone) Verb() string { return "delete-pod" }

// Verb is the event's word in scripts.
func (Now) Verb() string { return "tick" }
