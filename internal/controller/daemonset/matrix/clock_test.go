package matrix

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/loop/clocktest"
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

// A pod that has been ready for long enough stays available when somebody sets the clock back. Who is not available goes
// without asking the budget.
func TestPodsStayAvailableWhenTheClockIsSetBack(t *testing.T) {
	m := New(row.Config{})
	m.Step(fact.Now{Time: clocktest.At(noon, time.Minute)})
	is := fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a",
		MinReadySeconds: 30, Strategy: rollingUpdate("1", "0"), Placement: placement.Compile(&corev1.PodSpec{})}
	m.Step(is)
	for i := range 3 {
		node := fmt.Sprint("n", i)
		m.Step(fact.Node{Name: node})
		m.Step(fact.Pod{UID: types.UID(node), Name: node, Owner: "logs", Node: node, Revision: "a", Bound: true,
			Ready: true, Created: noon.Add(-6 * time.Minute), ReadySince: noon.Add(-5 * time.Minute)})
	}
	m.Ready()
	m.Step(fact.Now{Time: clocktest.At(noon.Add(-time.Hour), 2*time.Minute)})
	is.Generation, is.Revision = 2, "b"
	m.Step(is)
	gone := 0
	for _, a := range m.Ready() {
		if _, deletes := a.(*action.DeletePod); deletes {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("%d pods are deleted at once, and one may be", gone)
	}
}
