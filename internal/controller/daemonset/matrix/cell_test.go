package matrix

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// A pod that has come and gone before its creation is answered is not waited for.
func TestAPodThatIsGoneBeforeTheAnswer(t *testing.T) {
	w := newWorld(row.Config{})
	w.setDaemonSet(fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a", Strategy: rollingUpdate("1", "0")}, corev1.PodSpec{})
	w.setNode(fact.Node{Name: "n1"})
	creation := func() *action.CreatePod {
		t.Helper()
		for _, a := range w.ready() {
			if c, ok := a.(*action.CreatePod); ok {
				return c
			}
		}
		t.Fatalf("no pod is made\n%s", w.m.Dump())
		return nil
	}
	first := creation()
	w.event(first)
	w.dropPod(w.uidOf(first))
	for len(w.inFlight) > 0 {
		w.finish(0, action.OK, false)
	}
	creation()
}
