package resizing

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/pod"
)

// Annotation is the annotation of a pod that was given other amounts while it ran: its Record.
const Annotation = "everynode.io/resized"

// Record says what was asked of a running pod last.
type Record struct {
	// Pod is the pod's own name, so that the text says nothing in a template, or copied to another pod.
	Pod string `json:"pod"`
	// Generation is that of the pod with the amounts that it is to have.
	Generation int64 `json:"generation"`
	// Asked names the cpu and memory of all its containers then, by AskedOf. While these are what the pod asks for, a
	// later generation changes something else. A version that did not write it went by the generation alone.
	Asked string `json:"asked,omitempty"`
	// At is when they were asked for. RestartsBy is how often each container had restarted by then, with those restarts
	// that are a part of it, and Restarts the most of them; a version that did not write the former went by the latter
	// alone. Was is what the daemon was like before.
	At         time.Time        `json:"at"`
	Restarts   int32            `json:"restarts,omitempty"`
	RestartsBy map[string]int32 `json:"restartsBy,omitempty"`
	Was        string           `json:"was,omitempty"`
}

// Text is the annotation's value.
func (r *Record) Text() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("write what was asked of pod %s: %w", r.Pod, err)
	}
	return string(text), nil
}

// RecordOf reads the record of a pod; nil if there is none. What cannot be read, or is of another pod, is none.
func RecordOf(p *corev1.Pod) *Record {
	text := p.Annotations[Annotation]
	if text == "" {
		return nil
	}
	var r Record
	if json.Unmarshal([]byte(text), &r) != nil || r.Pod != p.Name || r.At.IsZero() {
		return nil
	}
	return &r
}

// AskedOf is a short name of the cpu and memory that a pod's containers ask for.
func AskedOf(p *corev1.Pod) string {
	var text strings.Builder
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for _, list := range []corev1.ResourceList{containers[i].Resources.Requests, containers[i].Resources.Limits} {
				for _, name := range compute {
					amount, is := list[name]
					fmt.Fprint(&text, containers[i].Name, " ", name, " ", is, " ", amount.MilliValue(), "\n")
				}
			}
		}
	}
	sum := sha256.Sum256([]byte(text.String()))
	return hex.EncodeToString(sum[:8])
}

// State is how far a pod has come to what was asked of it.
type State uint8

// The states.
const (
	// Done: it has what it was to have, or somebody else has asked for something else since.
	Done State = iota
	// UnderWay: its node has not given it all of it.
	UnderWay
	// NoRoom: its node will give it that when other pods go.
	NoRoom
	// Impossible: its node can never give it that.
	Impossible
)

// StateOf says how far the pod has come to what its record says, and what its node says about it.
func (r *Record) StateOf(p *corev1.Pod) (s State, message string) {
	if p.Generation != r.Generation && (r.Asked == "" || r.Asked != AskedOf(p)) {
		return Done, ""
	}
	return stateOf(p, r.Generation)
}

// IsBetween reports whether a pod asks for amounts of a resize of which it does not say that it was done, and its node
// may still give them.
func IsBetween(p *corev1.Pod) bool {
	if len(HalfWay(p)) == 0 {
		return false
	}
	s, _ := stateOf(p, p.Generation)
	return s == UnderWay || s == NoRoom
}

// stateOf says how far the pod has come to what it asks for since a generation.
func stateOf(p *corev1.Pod, since int64) (s State, message string) {
	pending, under := pod.Condition(p, corev1.PodResizePending), pod.Condition(p, corev1.PodResizeInProgress)
	switch {
	case p.Status.ObservedGeneration < since:
		return UnderWay, ""
	case holds(pending) && pending.Reason == corev1.PodReasonInfeasible:
		return Impossible, pending.Message
	case holds(pending):
		return NoRoom, pending.Message
	case holds(under):
		return UnderWay, under.Message
	case pod.Resizing(p):
		return UnderWay, ""
	}
	return Done, ""
}

func holds(c *corev1.PodCondition) bool { return c != nil && c.Status == corev1.ConditionTrue }

// Infeasible reports whether the pod's node can never give it what was asked of it last, and what the node says.
func Infeasible(p *corev1.Pod) (message string, is bool) {
	r := RecordOf(p)
	if r == nil {
		return "", false
	}
	s, message := r.StateOf(p)
	return message, s == Impossible
}
