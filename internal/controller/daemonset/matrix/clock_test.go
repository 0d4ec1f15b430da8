package matrix

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// What a pod replaced is written on it when it is made. Who writes that on one that is there
// already excuses nothing by it.
func TestWhatAPodReplacedIsReadOnce(t *testing.T) {
	w := newWorld(row.Config{})
	w.setNode(fact.Node{Name: "n1"})
	w.setDaemonSet(fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a",
		Strategy: rollingUpdate("1", "0")}, corev1.PodSpec{})
	p := fact.Pod{UID: "p1", Name: "p1", Owner: "logs", Node: "n1", Revision: "a", Bound: true, Created: noon}
	w.m.Step(p)
	p.Before = standing.WasNotAvailable
	w.m.Step(p)
	if got := w.m.pods["p1"].Info().Before; got != "" {
		t.Errorf("it replaced one that was %s", got)
	}
}
