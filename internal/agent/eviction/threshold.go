package eviction

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal names something of which a node must keep some free.
type Signal string

// The signals, in the order in which they are relieved. Nodefs is the file system of pods' volumes and logs, imagefs
// that of images and containers' own layers.
const (
	MemoryAvailable   Signal = "memory.available"
	NodeFSAvailable   Signal = "nodefs.available"
	NodeFSInodesFree  Signal = "nodefs.inodesFree"
	ImageFSAvailable  Signal = "imagefs.available"
	ImageFSInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
)

var signals = []Signal{
	MemoryAvailable, NodeFSAvailable, NodeFSInodesFree, ImageFSAvailable, ImageFSInodesFree, PIDAvailable,
}

// Default is what a node keeps free unless it is told otherwise, as Parse reads it.
const Default = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%," +
	"imagefs.available<15%,pid.available<1%"

// None instead of thresholds says that a node is never under pressure.
const None = "none"

// Resource is what pods use up of the signal, in the API's words.
func (s Signal) Resource() string {
	switch s {
	case MemoryAvailable:
		return "memory"
	case NodeFSInodesFree, ImageFSInodesFree:
		return "inodes"
	case PIDAvailable:
		return "pids"
	default:
		return "ephemeral-storage"
	}
}

// OnDisk says whether files are what the node is short of.
func (s Signal) OnDisk() bool { return s != MemoryAvailable && s != PIDAvailable }

// Threshold is what must be left of a signal: an amount (bytes, or a count), or a part of the whole between 0 and 1.
type Threshold struct {
	Signal Signal
	Amount int64
	Part   float64
}

// Thresholds are the thresholds of a node, at most one for each signal.
type Thresholds []Threshold

// Observation is how much there is of something, and how much of that is free.
type Observation struct{ Available, Capacity int64 }

// Observations are what a look at the node showed. A signal that is missing was not measured, and is never short.
type Observations map[Signal]Observation

// Limit is the least that may be free of capacity.
func (t Threshold) Limit(capacity int64) int64 {
	if t.Part > 0 {
		return int64(t.Part * float64(capacity))
	}
	return t.Amount
}

// text is the threshold as its user wrote it.
func (t Threshold) text() string {
	switch {
	case t.Part > 0:
		return strconv.FormatFloat(t.Part*100, 'g', 4, 64) + "%"
	default:
		return resource.NewQuantity(t.Amount, resource.BinarySI).String()
	}
}

// Keep is what pods cannot have of capacity, because the signal's threshold keeps it free.
func (list Thresholds) Keep(s Signal, capacity int64) int64 {
	for _, t := range list {
		if t.Signal == s {
			return t.Limit(capacity)
		}
	}
	return 0
}

// Crossing is a threshold that is crossed.
type Crossing struct {
	Threshold   Threshold
	Observation Observation
	// Soft says that the threshold is one of those that are acted on later.
	Soft bool
}

// Parse reads thresholds such as memory.available<100Mi,nodefs.available<10%.
func Parse(text string) (Thresholds, error) {
	var out Thresholds
	if text == None {
		return out, nil
	}
	seen := map[Signal]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "<")
		signal := Signal(strings.TrimSpace(name))
		value = strings.TrimSpace(value)
		if !ok || value == "" {
			return nil, fmt.Errorf("threshold %q is not of the form SIGNAL<AMOUNT", part)
		}
		if !slices.Contains(signals, signal) {
			return nil, fmt.Errorf("unknown signal %q; the signals are %v", signal, signals)
		}
		if seen[signal] {
			return nil, fmt.Errorf("signal %s has two thresholds", signal)
		}
		seen[signal] = true
		t, err := parseLimit(value)
		if err != nil {
			return nil, fmt.Errorf("threshold %q: %w", part, err)
		}
		t.Signal = signal
		out = append(out, t)
	}
	return out, nil
}

func parseLimit(value string) (Threshold, error) {
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		n, err := strconv.ParseFloat(percent, 64)
		if err != nil || n < 0 || n >= 100 {
			return Threshold{}, fmt.Errorf("%s is not a percentage from 0%% to below 100%%", value)
		}
		return Threshold{Part: n / 100}, nil
	}
	q, err := resource.ParseQuantity(value)
	if err != nil || q.Sign() < 0 {
		return Threshold{}, fmt.Errorf("%s is not an amount, such as 100Mi or 10%%", value)
	}
	return Threshold{Amount: q.Value()}, nil
}
