package matrix

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// What is known of a rollout goes with it or with its DaemonSet, also where that never had a row, and
// so does the pace of a policy that nobody follows any more.
func TestRolloutsAndPacesAreForgotten(t *testing.T) {
	policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{}, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(row.Config{})
	follow := func(set, by types.UID) {
		w.m.Step(fact.Rollout{UID: set, PolicyUID: by, Policy: policy})
	}
	expect := func(rollouts, paces int) {
		t.Helper()
		if len(w.m.rollouts) != rollouts || len(w.m.paces) != paces {
			t.Errorf("%d rollouts and %d paces are known, want %d and %d", len(w.m.rollouts), len(w.m.paces), rollouts, paces)
		}
	}
	for _, name := range []string{"logs", "net"} {
		w.setDaemonSet(fact.DaemonSet{UID: types.UID(name), Name: name, Revision: "a"}, corev1.PodSpec{})
		follow(types.UID(name), "shared")
	}
	follow("broken", "shared") // its selector cannot be read, so it has no row
	expect(3, 1)
	shared := w.m.paces["shared"]
	follow("net", "another")
	expect(3, 2)
	if w.m.paces["shared"] != shared {
		t.Error("the pace of a policy that is still followed began again")
	}
	w.m.Step(fact.RolloutGone("net"))
	expect(2, 1)
	w.m.Step(fact.DaemonSetGone("broken"))
	expect(1, 1)
	w.m.Step(fact.DaemonSetGone("logs"))
	expect(0, 0)
}

// A pod beside the old one whose creation got no answer may be there: it is asked for again by its
// name, although the rollout was paused meanwhile and gives no node its turn.
func TestUnansweredSurgeIsAskedForAgain(t *testing.T) {
	policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{}, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(row.Config{})
	w.setNode(fact.Node{Name: "n"})
	w.setPod(fact.Pod{UID: "old", Name: "old", Owner: "logs", Node: "n", Bound: true, Revision: "a", Ready: true,
		ReadySince: noon, Created: noon})
	info := fact.DaemonSet{UID: "logs", Name: "logs", Generation: 1, Revision: "a", Strategy: rollingUpdate("0", "1")}
	w.setDaemonSet(info, corev1.PodSpec{})
	rollout := w.rolloutOf("logs")
	rollout.Policy, rollout.PolicyUID = policy, "p"
	w.setRollout(rollout)
	// next finishes everything but the first creation, which it returns.
	next := func() *action.CreatePod {
		for range 20 {
			w.ready()
			for i := 0; i < len(w.inFlight); i++ {
				if a, is := w.inFlight[i].(*action.CreatePod); is {
					return a
				}
				w.finish(i, action.OK, true)
				i--
			}
			w.tick(time.Second)
		}
		return nil
	}
	if a := next(); a != nil {
		t.Fatalf("nothing has changed: %s", a)
	}
	info.Generation, info.Revision, info.Reported = 2, "b", w.sets["logs"].Reported
	w.setDaemonSet(info, corev1.PodSpec{})
	first := next()
	if first == nil || first.Revision != "b" {
		t.Fatalf("the new revision does not come: %v", first)
	}
	w.finish(0, action.Unknown, false)
	rollout = w.rolloutOf("logs")
	rollout.Spec.Paused = true
	w.setRollout(rollout)
	if again := next(); again == nil || again.PodName != first.PodName {
		t.Errorf("after an answer that never came: %v, want pod %s again", again, first.PodName)
	}
}
