package matrix

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Event is all that a matrix is told: a DaemonSetInfo, NodeInfo, NodeHealth, PodInfo
// or RolloutInfo as it is now, one that is gone, the time, or what became of an action. The same value
// twice is no work.
type Event interface{ Verb() string }

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

// Answer brings back what became of an action.
type Answer struct {
	Action  Action `json:"-"`
	Outcome Outcome
	// Pod is the UID of the pod that a creation has made, or found made.
	Pod types.UID `json:",omitempty"`
	// Refused is what the API said to a creation that it refused for good.
	Refused string `json:",omitempty"`
}

// Verb is the event's word in scripts.
func (DaemonSetInfo) Verb() string { return "daemonset" }

// Verb is the event's word in scripts.
func (NodeInfo) Verb() string { return "node" }

// Verb is the event's word in scripts.
func (PodInfo) Verb() string { return "pod" }

// Verb is the event's word in scripts.
func (DaemonSetGone) Verb() string { return "delete-daemonset" }

// Verb is the event's word in scripts.
func (NodeGone) Verb() string { return "delete-node" }

// Verb is the event's word in scripts.
func (PodGone) Verb() string { return "delete-pod" }

// Verb is the event's word in scripts.
func (Now) Verb() string { return "tick" }

// Verb is the event's word in scripts.
func (Answer) Verb() string { return "done" }

// ReadEvent reads an event from its JSON. The action of an answer is not in it.
func ReadEvent(verb string, raw []byte) (Event, error) {
	if r := readers[verb]; r != nil {
		return r(raw)
	}
	return nil, fmt.Errorf("there is no event %q", verb)
}

var readers = map[string]func([]byte) (Event, error){
	DaemonSetInfo{}.Verb():   read[DaemonSetInfo],
	DaemonSetGone("").Verb(): read[DaemonSetGone],
	NodeInfo{}.Verb():        read[NodeInfo],
	NodeGone("").Verb():      read[NodeGone],
	NodeHealth{}.Verb():      read[NodeHealth],
	PodInfo{}.Verb():         read[PodInfo],
	PodGone("").Verb():       read[PodGone],
	RolloutInfo{}.Verb():     read[RolloutInfo],
	RolloutGone("").Verb():   read[RolloutGone],
	Now{}.Verb():             read[Now],
	Answer{}.Verb():          read[Answer],
}

func read[E Event](raw []byte) (Event, error) {
	var e E
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("read event %q: %w", e.Verb(), err)
	}
	return e, nil
}
