package matrix

import (
	"encoding/json"
	"fmt"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Event is all that a matrix is told: facts as they are now, what is gone, the time, or what became of an action.
// The same value twice is no work.
type Event interface{ Verb() string }

// ReadEvent reads an event from its JSON. The action of an answer is not in it.
func ReadEvent(verb string, raw []byte) (Event, error) {
	if r := readers[verb]; r != nil {
		return r(raw)
	}
	return nil, fmt.Errorf("there is no event %q", verb)
}

var readers = map[string]func([]byte) (Event, error){
	fact.DaemonSet{}.Verb():       read[fact.DaemonSet],
	fact.DaemonSetGone("").Verb(): read[fact.DaemonSetGone],
	fact.Node{}.Verb():            read[fact.Node],
	fact.NodeGone("").Verb():      read[fact.NodeGone],
	fact.Health{}.Verb():          read[fact.Health],
	fact.Pod{}.Verb():             read[fact.Pod],
	fact.PodGone("").Verb():       read[fact.PodGone],
	fact.Rollout{}.Verb():         read[fact.Rollout],
	fact.RolloutGone("").Verb():   read[fact.RolloutGone],
	fact.Now{}.Verb():             read[fact.Now],
	action.Answer{}.Verb():        read[action.Answer],
}

func read[E Event](raw []byte) (Event, error) {
	var e E
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("read event %q: %w", e.Verb(), err)
	}
	return e, nil
}
