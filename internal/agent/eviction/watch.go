package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// DefaultTransition is how long pressure must be over before the node's condition says so.
const DefaultTransition = 5 * time.Minute

// Rules say when a node ends pods.
type Rules struct {
	// Hard thresholds are acted on at once, Soft ones when they are crossed for as long as SoftGrace says, which has every
	// signal of theirs.
	Hard, Soft Thresholds
	SoftGrace  map[Signal]time.Duration
	// Reclaim is what must be free beyond a threshold that was crossed before it counts as relieved.
	Reclaim Thresholds
	// MaxPodGrace is how long the containers of a pod have at most that a soft threshold ends, in seconds.
	MaxPodGrace int64
	// Transition is how long pressure must be over before the node's condition says so.
	Transition time.Duration
}

// hardGrace is how long the containers of a pod have that a hard threshold ends, in seconds.
const hardGrace = 1

// Grace is how long the containers of a pod have at most that is ended for the crossing, in seconds.
func (r *Rules) Grace(c Crossing) int64 {
	if c.Soft {
		return r.MaxPodGrace
	}
	return hardGrace
}

// place names a threshold of a node.
type place struct {
	signal Signal
	soft   bool
}

// Watch remembers what a node was short of. The zero value has seen nothing.
type Watch struct {
	// since is when the thresholds were crossed that are not relieved yet.
	since map[place]time.Time
	// felt is when the node was last under each pressure.
	felt map[corev1.NodeConditionType]time.Time
}

// Look takes in what there is now, and lists the crossed thresholds to act on, the one to relieve first at the front.
// What has no capacity, such as the inodes of some file systems, is never short.
func (w *Watch) Look(r *Rules, now Observations, at time.Time) []Crossing {
	since := map[place]time.Time{}
	var due []Crossing
	for _, group := range []struct {
		list Thresholds
		soft bool
	}{{r.Hard, false}, {r.Soft, true}} {
		for _, t := range group.list {
			o, ok := now[t.Signal]
			here := place{t.Signal, group.soft}
			begun, before := w.since[here]
			wanted := t.Limit(o.Capacity)
			if before {
				wanted += r.Reclaim.Keep(t.Signal, o.Capacity)
			}
			if !ok || o.Capacity <= 0 || o.Available >= wanted {
				continue
			}
			if !before {
				begun = at
			}
			since[here] = begun
			if w.felt == nil {
				w.felt = map[corev1.NodeConditionType]time.Time{}
			}
			w.felt[t.Signal.Condition()] = at
			if !group.soft || at.Sub(begun) >= r.SoftGrace[t.Signal] {
				due = append(due, Crossing{Threshold: t, Observation: o, Soft: group.soft})
			}
		}
	}
	w.since = since
	slices.SortStableFunc(due, func(a, b Crossing) int {
		return slices.Index(signals, a.Threshold.Signal) - slices.Index(signals, b.Threshold.Signal)
	})
	return due
}

// Conditions are the pressures that the node says it is under; never nil.
func (w *Watch) Conditions(r *Rules, at time.Time) []corev1.NodeConditionType {
	out := []corev1.NodeConditionType{}
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	} {
		felt, ok := w.felt[kind]
		if !ok {
			continue
		}
		pressing := false
		for here := range w.since {
			pressing = pressing || here.signal.Condition() == kind
		}
		if pressing || at.Sub(felt) < r.Transition {
			out = append(out, kind)
		}
	}
	return out
}

// Condition is the node's condition that tells of the signal.
func (s Signal) Condition() corev1.NodeConditionType {
	switch {
	case s == MemoryAvailable:
		return corev1.NodeMemoryPressure
	case s.OnDisk():
		return corev1.NodeDiskPressure
	default:
		return corev1.NodePIDPressure
	}
}
