// Package joining makes the changes of Nodes by which NodeStartups close and open them beside another DaemonSet
// controller. All are JSON patches: taints and annotations of others stay, and each change holds only for the Node as
// it was seen.
package joining

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// missing tests that there is nothing at a path. A value of nil would be left out.
var missing = json.RawMessage("null")

// patch is a JSON patch that is being made.
type patch struct{ operations []operation }

func (p *patch) do(op, path string, value any) {
	p.operations = append(p.operations, operation{Op: op, Path: path, Value: value})
}

const annotations = "/metadata/annotations"

// pathOf is where the annotation with a key is.
func pathOf(key string) string { return annotations + "/" + strings.ReplaceAll(key, "/", "~1") }

// annotate sets annotations of a Node, or takes those off whose value is nil. What is not there is not taken off.
func (p *patch) annotate(have map[string]string, all ...annotation) {
	if have == nil && slices.ContainsFunc(all, func(a annotation) bool { return a.value != nil }) {
		p.do("test", annotations, missing)
		p.do("add", annotations, map[string]string{})
	}
	for _, a := range all {
		path := pathOf(a.key)
		_, there := have[a.key]
		switch {
		case a.value != nil:
			p.do("add", path, *a.value)
		case there:
			p.do("remove", path, nil)
		}
	}
}

type annotation struct {
	key   string
	value *string
}

// gate has a Node with these taints have another gate in place of what it has, nil for none.
func (p *patch) gate(taints []corev1.Taint, gate *corev1.Taint) {
	at := slices.IndexFunc(taints, func(t corev1.Taint) bool { return t.Key == nodestartup.TaintKey })
	path := fmt.Sprintf("/spec/taints/%d", at)
	switch {
	case at < 0 && gate == nil:
	case at < 0 && len(taints) == 0:
		p.do("test", "/spec/taints", missing)
		p.do("add", "/spec/taints", []corev1.Taint{*gate})
	case at < 0:
		p.do("add", "/spec/taints/-", gate)
	case gate == nil:
		p.do("test", path, taints[at])
		p.do("remove", path, nil)
	default:
		p.do("test", path, taints[at])
		p.do("replace", path, gate)
	}
}

func (p *patch) bytes() ([]byte, error) {
	if len(p.operations) == 0 {
		return nil, nil
	}
	return json.Marshal(p.operations)
}

// onto begins a patch of this very Node.
func onto(n *corev1.Node) *patch {
	p := &patch{}
	p.do("test", "/metadata/uid", n.UID)
	return p
}

// Join is what becomes of a Node that is being created: it is marked as one that somebody was asked about, and closed
// if the first of the NodeStartups that choose it closes nodes.
func Join(n *corev1.Node, all []*v1alpha1.NodeStartup, standing func(types.NamespacedName) plan.Standing,
	now time.Time) (raw []byte, closed bool, err error) {
	p := &patch{}
	mark := annotation{nodestartup.MarkAnnotation, new(string)}
	var gate *corev1.Taint
	var why *string
	if matching := nodestartup.NewSet(all).Matching(n.Labels); len(matching) > 0 {
		first := matching[0]
		if lacking := plan.Lacking(first, standing); len(lacking) > 0 {
			text := plan.BarredBy(first.Name, lacking)
			why = &text
		} else {
			gate = nodestartup.Gate(nodestartup.Place{Startup: first.Name, Group: 1}, first.Spec.Gate, now)
		}
	}
	p.annotate(n.Annotations, mark, annotation{nodestartup.NotClosedAnnotation, why})
	if nodestartup.TaintOf(n.Spec.Taints) == nil && gate != nil {
		p.gate(n.Spec.Taints, gate)
		closed = true
	}
	raw, err = p.bytes()
	return raw, closed, err
}

// Regate gives a node another gate in place of the one that was seen, nil for none, and writes down the daemons that it
// went on without.
func Regate(n *corev1.Node, gate *corev1.Taint, without []string) ([]byte, error) {
	p := onto(n)
	p.gate(n.Spec.Taints, gate)
	if len(without) > 0 {
		if before := n.Annotations[nodestartup.WithoutAnnotation]; before != "" {
			without = append([]string{before}, without...)
		}
		text := strings.Join(without, ",")
		p.annotate(n.Annotations, annotation{nodestartup.WithoutAnnotation, &text})
	}
	return p.bytes()
}

// Write writes what is due on a Node, if nobody else has done so.
func Write(n *corev1.Node, due plan.Due) ([]byte, error) {
	p := onto(n)
	if have, marked := n.Annotations[nodestartup.MarkAnnotation]; marked {
		p.do("test", pathOf(nodestartup.MarkAnnotation), have)
	}
	mark := due.Mark.String()
	all := []annotation{{nodestartup.MarkAnnotation, &mark}}
	switch {
	case due.While != nil:
		at := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(due.While) })
		p.do("test", fmt.Sprintf("/spec/taints/%d", at), due.While)
		p.gate(n.Spec.Taints, due.Gate)
	case due.Gate != nil:
		at := due.Gate.TimeAdded.UTC().Format(time.RFC3339)
		all = append(all, annotation{nodestartup.ClosedAnnotation, &at},
			annotation{nodestartup.NotClosedAnnotation, nil})
		p.gate(n.Spec.Taints, due.Gate)
	case due.NotClosed != "":
		why := due.NotClosed
		all = append(all, annotation{nodestartup.NotClosedAnnotation, &why})
	}
	p.annotate(n.Annotations, all...)
	return p.bytes()
}

// Leave takes everything of NodeStartups off a Node; nil if there is nothing.
func Leave(n *corev1.Node) ([]byte, error) {
	p := onto(n)
	p.gate(n.Spec.Taints, nil)
	p.annotate(n.Annotations, annotation{nodestartup.MarkAnnotation, nil},
		annotation{nodestartup.NotClosedAnnotation, nil}, annotation{nodestartup.WithoutAnnotation, nil},
		annotation{nodestartup.ClosedAnnotation, nil})
	if len(p.operations) == 1 {
		return nil, nil
	}
	return p.bytes()
}
