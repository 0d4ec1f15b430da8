package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// keptEvents is how many events of a pod are shown.
const keptEvents = 5

// AsksForMore reports whether the events of the place's pod are worth showing, and the log of its container.
func (p *Place) AsksForMore() (events, log bool) {
	switch standing.Verdict(p.Verdict) {
	case standing.Current, standing.NotSelected, standing.Waiting:
		return false, false
	}
	return p.Pod != "", p.Container != ""
}

// AddEvents adds the latest of a pod's events.
func (p *Place) AddEvents(events []corev1.Event) {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return last(&a).Compare(last(&b)) })
	for _, e := range events[max(0, len(events)-keptEvents):] {
		line := e.Type + " " + e.Reason
		if !last(&e).IsZero() {
			line = last(&e).UTC().Format("15:04:05 UTC ") + line
		}
		if n := count(&e); n > 1 {
			line += fmt.Sprintf(" (%d times)", n)
		}
		p.Events = append(p.Events, line+": "+strings.TrimSpace(e.Message))
	}
}

// last is when an event was seen last, of either kind of event.
func last(e *corev1.Event) time.Time {
	at := e.LastTimestamp.Time
	if e.EventTime.After(at) {
		at = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}

func count(e *corev1.Event) int32 {
	if e.Series != nil {
		return e.Series.Count
	}
	return e.Count
}
