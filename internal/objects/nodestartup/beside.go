package nodestartup

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What stands on Nodes beside another DaemonSet controller, where the API server knows nothing of NodeStartups.
const (
	// MarkAnnotation says which start of a Node's machine has been dealt with, and under which NodeStartup. It is empty
	// from the write that creates the Node on, where the webhook was asked about that.
	MarkAnnotation = "everynode.io/startup-mark"
	// NotClosedAnnotation says why a Node stayed open that was to be closed.
	NotClosedAnnotation = "everynode.io/not-closed"
)

// Tolerated reports whether pods of this specification may be placed on a node at any group of any NodeStartup.
func Tolerated(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Operator == corev1.TolerationOpExists && (t.Key == "" || t.Key == TaintKey) &&
			(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule)
	})
}

// Mark is the start of a node's machine that has been dealt with under a NodeStartup.
type Mark struct {
	Startup types.UID
	BootID  string
}

// String is the annotation's value.
func (m Mark) String() string { return string(m.Startup) + "/" + m.BootID }

// MarkOf reads a Node's annotation; false if it has none. Of a Node that nothing has been dealt with yet it is empty.
func MarkOf(n *corev1.Node) (Mark, bool) {
	value, marked := n.Annotations[MarkAnnotation]
	startup, boot, _ := strings.Cut(value, "/")
	return Mark{Startup: types.UID(startup), BootID: boot}, marked
}
