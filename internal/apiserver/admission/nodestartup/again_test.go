package nodestartup

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// booted is a node of a pool whose machine runs since it started with that ID.
func booted(pool, id string, gates ...*corev1.Taint) *corev1.Node {
	n := nodeWith(pool, gates...)
	n.Status.NodeInfo.BootID = id
	return n
}

// The report that a machine has started again closes its node at the first group, whoever writes it and whatever it says
// of taints. All other reports leave the gate alone.
func TestAMachineThatStartsAgainClosesItsNode(t *testing.T) {
	have := lister{all: []v1alpha1.NodeStartup{startup("a", map[string]string{"pool": "x"})}}
	for name, c := range map[string]struct {
		old, n *corev1.Node
		want   string
		closes bool
	}{
		"an open node":           {booted("x", "1"), booted("x", "2"), "a_1", true},
		"one that starts":        {booted("x", "1", gate("a_2")), booted("x", "2", gate("a_2")), "a_1", true},
		"of another NodeStartup": {booted("x", "1", gate("gone_2")), booted("x", "2", gate("gone_2")), "a_1", true},
		"not chosen":             {booted("y", "1"), booted("y", "2"), "", false},
		"no longer chosen":       {booted("y", "1", gate("a_2")), booted("y", "2"), "a_2", false},
		"says it is further":     {booted("x", "1"), booted("x", "2", gate("a_9")), "a_1", true},
		"says it, not chosen":    {booted("y", "1"), booted("y", "2", gate("a_9")), "", false},
		"the same start":         {booted("x", "1", gate("a_2")), booted("x", "1", gate("a_2")), "a_2", false},
		"its first report":       {booted("x", ""), booted("x", "2"), "", false},
		"no word of the machine": {booted("x", "1"), booted("x", ""), "", false},
	} {
		err := write(t, have, request("system:node:n", admission.Update, c.n, c.old, "status"), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		value, is := "", nodestartup.TaintOf(c.n.Spec.Taints)
		if is != nil {
			value = is.Value
		}
		if value != c.want || gates(c.n.Spec.Taints) > 1 || c.n.Spec.Taints[0] != mine {
			t.Errorf("%s: it has the taints %v, want the gate %q", name, c.n.Spec.Taints, c.want)
		}
		at, closed := c.n.Annotations[nodestartup.ClosedAnnotation]
		if closed != c.closes || closed && at != is.TimeAdded.UTC().Format(time.RFC3339) {
			t.Errorf("%s: closed at %q, want %t", name, at, c.closes)
		}
	}
}

// While nobody knows what the node is to start, it does not report that its machine has started: it would be open.
func TestAMachineThatStartsAgainWaitsWhileStartupsAreUnknown(t *testing.T) {
	unknown := lister{err: errors.New("no majority")}
	err := write(t, unknown, request("system:node:n", admission.Update, booted("x", "2"), booted("x", "1"), "status"), nil)
	if !apierrors.IsInternalError(err) {
		t.Errorf("it gets %v", err)
	}
	err = write(t, unknown, request("system:node:n", admission.Update, booted("x", "1"), booted("x", "1"), "status"), nil)
	if err != nil {
		t.Errorf("another report gets %v", err)
	}
}
