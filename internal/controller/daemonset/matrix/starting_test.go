package matrix

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// startsAt tells of the nodes that they start, and at which group they are; 0 for none.
func (w *world) startsAt(group, nodes int) {
	for i := range nodes {
		n := fact.Node{Name: fmt.Sprintf("n%03d", i)}
		if group > 0 {
			n.Taints = []corev1.Taint{*nodestartup.Gate(nodestartup.Place{Startup: "s", Group: group}, v1alpha1.GateJoin, noon)}
		}
		w.m.Step(n)
	}
}

// passSeconds answers what is to be done, and has pods end at once and be ready a second later. It returns how many
// were deleted.
func (w *world) passSeconds(seconds int) (deleted int) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		w.m.Step(fact.Now{Time: w.now})
		for _, a := range w.m.Ready() {
			switch a := a.(type) {
			case *action.DeletePod:
				deleted++
				w.m.Step(action.Answer{Action: a, Outcome: action.OK})
				w.m.Step(fact.PodGone(a.PodUID))
			case *action.CreatePod:
				uid := w.uidOf(a)
				w.m.Step(action.Answer{Action: a, Outcome: action.OK, Pod: uid})
				w.m.Step(fact.Pod{UID: uid, Name: a.PodName, Owner: "logs", Node: a.Node, Revision: a.Revision, Bound: true,
					BoundAt: w.now, Ready: true, ReadySince: w.now, Created: w.now})
			default:
				w.m.Step(action.Answer{Action: a, Outcome: action.OK})
			}
		}
	}
	return deleted
}

// The machines of all nodes have started again, and these wait for daemons of an earlier group. A change takes no
// daemon there: none would come in its place. It holds up no other node, and goes on when the group has begun.
func TestNoDaemonIsTakenWhereItsGroupHasNotBegun(t *testing.T) {
	for _, strategy := range []fact.Strategy{rollingUpdate("1", "0"), rollingUpdate("0", "1")} {
		w := following(t, 5, "nodeFaults: {max: 100%}")
		w.startsAt(1, 4)
		rules := placement.Compile(&corev1.PodSpec{})
		info := w.sets["logs"]
		info.Generation, info.Revision, info.Strategy = 2, "b", strategy
		for _, in := range []int{2, 1, 2} { // the NodeStartup is edited meanwhile
			info.Placement = rules.Starting([]nodestartup.Place{{Startup: "s", Group: in}})
			info.Earlier = &placement.Revisions{ByRevision: map[string]*placement.Rules{"a": info.Placement}}
			w.m.Step(info)
		}
		if n := w.passSeconds(60); n != 1 {
			t.Errorf("%+v: %d daemons are taken, want that of the node that does not start", strategy, n)
		}
		verdict, why, _ := w.m.Verdict("logs", "n000")
		if verdict != standing.NodeFault || why != "group 1 of NodeStartup s starts there first" {
			t.Errorf("%+v: a node that starts is %s: %s", strategy, verdict, why)
		}
		w.startsAt(2, 4)
		w.passSeconds(60)
		if n := w.m.PodsOfRevision("logs", "b"); n != 5 {
			st, _ := w.m.Rollout("logs")
			t.Errorf("%+v: %d of 5 have b after the group has begun; %s: %s", strategy, n, st.Phase, st.Message)
		}
	}
}

// Nodes have come back, and whoever marks them as not ready has not seen it yet. Their daemons work. A change takes none
// of them while none could be made there.
func TestNoDaemonIsTakenWhileItsNodeIsMarked(t *testing.T) {
	mark := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	w := following(t, 5, "nodeFaults: {max: 100%}")
	for i := range 5 {
		w.m.Step(fact.Node{Name: fmt.Sprintf("n%03d", i), Taints: []corev1.Taint{mark}})
	}
	w.update()
	if n := w.passSeconds(60); n > 0 {
		t.Errorf("%d of 5 daemons are taken", n)
	}
	w.startsAt(0, 5)
	w.passSeconds(60)
	if n := w.m.PodsOfRevision("logs", "b"); n != 5 {
		t.Errorf("%d of 5 have b when the mark is gone", n)
	}
}

// Without a policy it is the same, also while such a node is marked as not ready, its own daemon is not ready yet, or
// other taints come and go. A DaemonSet that nobody lists is changed there as in Kubernetes.
func TestWithoutAPolicyNoDaemonIsTakenWhereItsGroupHasNotBegun(t *testing.T) {
	for _, strategy := range []fact.Strategy{rollingUpdate("1", "0"), rollingUpdate("0", "1")} {
		w := following(t, 6, "{}")
		w.m.Step(fact.RolloutGone("logs"))
		w.startsAt(1, 4)
		mark := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
		w.m.Step(fact.Node{Name: "n004", Taints: []corev1.Taint{mark}})
		unready := w.pods["n000"]
		unready.Ready, unready.ReadySince = false, time.Time{}
		w.m.Step(unready)
		info := w.sets["logs"]
		info.Generation, info.Revision, info.Strategy = 2, "b", strategy
		listed := placement.Compile(&corev1.PodSpec{}).Starting([]nodestartup.Place{{Startup: "s", Group: 2}})
		info.Placement = listed
		w.m.Step(info)
		if n := w.passSeconds(60); n != 1 {
			t.Errorf("%+v: %d daemons are taken, want that of the node that does not start", strategy, n)
		}
		w.startsAt(2, 5)
		w.passSeconds(60)
		if n := w.m.PodsOfRevision("logs", "b"); n != 6 {
			t.Errorf("%+v: %d of 6 have b after the group has begun", strategy, n)
		}
		info.Generation, info.Revision, info.Placement = 3, "c", placement.Compile(&corev1.PodSpec{})
		w.m.Step(info)
		if n := w.passSeconds(60); n != 6 {
			t.Errorf("%+v: where nobody lists it %d of 6 daemons are taken", strategy, n)
		}
	}
}
