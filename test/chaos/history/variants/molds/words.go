package molds

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/test/chaos/history/wish"
)

// ClassLabel is the label by which variants tell nodes apart.
const ClassLabel = wish.UserKey + "class"

// Formulas of rounds.
const (
	Hundredth  = "max(0.1, node.allocatable.cpu * 0.01)"
	Fiftieth   = "node.allocatable.cpu * 0.02 + 0.05"
	ByClass    = "node.labels['" + ClassLabel + "'] == 'l' ? 0.4 : 0.2"
	NoSuch     = "node.labels['" + wish.UserKey + "none'] == 'x' ? 0.1 : 0.2"
	NotSmall   = "(node.allocatable.cpu - 4.0) * 0.05"
	Greedy     = "node.allocatable.cpu * 0.7"
	Impossible = "node.allocatable.cpu * 1.5"
	Memory     = "max(quantity('128Mi'), node.allocatable.memory * 0.01)"
	Fixed      = "quantity('96Mi')"
	Twentieth  = "node.allocatable.memory * 0.05"
	BelowAll   = "quantity('32Mi')"
	Disk       = "quantity('1Gi')"
)

// formulas is what each gives on a node, false for a failure.
var formulas = map[string]func(n *corev1.Node) (float64, bool){
	Hundredth:  func(n *corev1.Node) (float64, bool) { return max(0.1, cores(n)*0.01), true },
	Fiftieth:   func(n *corev1.Node) (float64, bool) { return cores(n)*0.02 + 0.05, true },
	NotSmall:   func(n *corev1.Node) (float64, bool) { v := (cores(n) - 4) * 0.05; return v, v >= 0 },
	Greedy:     func(n *corev1.Node) (float64, bool) { return cores(n) * 0.7, true },
	Impossible: func(n *corev1.Node) (float64, bool) { return cores(n) * 1.5, true },
	NoSuch:     func(*corev1.Node) (float64, bool) { return 0, false },
	Memory:     func(n *corev1.Node) (float64, bool) { return max(128*mebi, bytes(n)*0.01), true },
	Fixed:      func(*corev1.Node) (float64, bool) { return 96 * mebi, true },
	Twentieth:  func(n *corev1.Node) (float64, bool) { return bytes(n) * 0.05, true },
	BelowAll:   func(*corev1.Node) (float64, bool) { return 32 * mebi, true },
	Disk:       func(*corev1.Node) (float64, bool) { return 1024 * mebi, true },
	ByClass: func(n *corev1.Node) (float64, bool) {
		class, is := n.Labels[ClassLabel]
		if class == "l" {
			return 0.4, is
		}
		return 0.2, is
	},
}

const mebi = 1 << 20

func cores(n *corev1.Node) float64 { return n.Status.Allocatable.Cpu().AsApproximateFloat64() }

func bytes(n *corev1.Node) float64 { return n.Status.Allocatable.Memory().AsApproximateFloat64() }

// Patches of rounds. Refused is a patch whose pods the API does not take, and Unknown of which it cannot tell before.
var (
	Level   = func(value string) string { return patchOf(`"env":[{"name":"LEVEL","value":"` + value + `"}]`) }
	Restart = patchOf(`"resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]`)
	Amounts = patchOf(`"resources":{"requests":{"cpu":"300m","memory":"160Mi"}}`)
	Note    = `{"metadata":{"annotations":{"` + NoteAnnotation + `":"noted"}}}`
	Refused = `{"spec":{"priorityClassName":"no-such-class"}}`
)

// NoteAnnotation is one that a patch gives pods.
const NoteAnnotation = wish.UserKey + "note"

func patchOf(fields string) string { return `{"spec":{"containers":[{"name":"main",` + fields + `}]}}` }

// patches is what each does to a pod.
var patches = map[string]func(*Outcome){
	plain(Level("one")): func(o *Outcome) { o.Level = "one" },
	plain(Level("two")): func(o *Outcome) { o.Level = "two" },
	plain(Restart):      func(o *Outcome) { o.Restart = "RestartContainer" },
	plain(Amounts):      func(o *Outcome) { o.CPU, o.Memory = 300, 160*mebi },
	plain(Note):         func(o *Outcome) { o.Note = "noted" },
	plain(Refused):      func(o *Outcome) { o.Keeps, o.Why = true, refused },
}

// refused is why a pod stays where the API refuses the one that its variants make.
const refused = "the API refuses its pod"

// plain is a patch as it is compared: with its keys in order.
func plain(patch string) string {
	var any map[string]any
	if err := json.Unmarshal([]byte(patch), &any); err != nil {
		panic(fmt.Sprintf("molds: patch %s is not JSON: %v", patch, err))
	}
	text, err := json.Marshal(any)
	if err != nil {
		panic("molds: what was read is not written: " + err.Error())
	}
	return string(text)
}
