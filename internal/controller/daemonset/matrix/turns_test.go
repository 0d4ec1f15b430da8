package matrix

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// tenNodes is ten nodes with revision a, complete under the policy.
func tenNodes(t *testing.T, text string, s fact.Strategy) (*world, func(revision string, s fact.Strategy)) {
	t.Helper()
	w := following(t, 10, text)
	update := func(revision string, s fact.Strategy) {
		info := w.sets["logs"]
		info.Generation, info.Revision, info.Strategy = info.Generation+1, revision, s
		w.setDaemonSet(info, corev1.PodSpec{})
	}
	update("a", s)
	w.passTurns(20)
	return w, update
}

// live brings all pods forward: made ones are ready a second later, going ones are gone.
func (w *world) live() {
	for _, p := range w.pods {
		switch {
		case p.Terminating:
			w.dropPod(p.UID)
		case !p.Ready && p.Phase == fact.PodActive:
			p.Bound, p.BoundAt, p.Ready, p.ReadySince = true, w.now, true, w.now
			w.setPod(p)
		}
	}
}

func (w *world) passTurns(turns int) {
	for range turns {
		w.ready()
		for len(w.inFlight) > 0 {
			w.finish(0, action.OK, true)
		}
		w.tick(time.Second)
		w.live()
	}
}

// begins answers what is written until there are creations, which it returns, unanswered.
func (w *world) begins() (out []action.Action) {
	for range 20 {
		w.ready()
		for i := 0; i < len(w.inFlight); {
			switch w.inFlight[i].(type) {
			case *action.CreatePod:
				out = append(out, w.inFlight[i])
				i++
			default:
				w.finish(i, action.OK, true)
			}
		}
		if len(out) > 0 {
			return out
		}
		w.tick(time.Second)
		w.live()
	}
	return nil
}

// Turns that surge gave, and whose pods wait for the slow start, end with the template.
func TestTurnsThatWaitForTheSlowStartEndWithTheTemplate(t *testing.T) {
	w, update := tenNodes(t, "waves: [{name: canary, count: 1}]", rollingUpdate("0", "4"))
	update("b", rollingUpdate("0", "4"))
	for range 30 { // until the last step is under way
		if st, _ := w.m.Rollout("logs"); st.Step == "rest" {
			break
		}
		w.passTurns(1)
	}
	a := w.begins()
	t.Logf("in flight %v", a)
	update("c", rollingUpdate("0", "2"))
	w.passTurns(600)
	st, _ := w.m.Rollout("logs")
	if w.m.PodsOfRevision("logs", "c") != 10 {
		t.Errorf("ten minutes later %d nodes have c, %d a: %s: %s", w.m.PodsOfRevision("logs", "c"), w.m.PodsOfRevision("logs", "a"), st.Phase, st.Message)
	}
}

// A switch from maxSurge to maxUnavailable: who had a turn does not lose its daemon by it.
func TestTurnsOfSurgeEndWithTheStrategy(t *testing.T) {
	w, update := tenNodes(t, "", rollingUpdate("0", "5"))
	update("b", rollingUpdate("0", "5"))
	t.Logf("in flight %v", w.begins())
	update("b", rollingUpdate("1", "0"))
	gone := 0
	for _, a := range w.ready() {
		if d, is := a.(*action.DeletePod); is && w.pods[d.PodUID].Ready {
			gone++
		}
	}
	if gone > 1 {
		t.Errorf("%d working daemons go at once; maxUnavailable is 1", gone)
	}
}

// doubt has a paused change to b with surge whose creations beside the old pods got no answer.
func doubt(t *testing.T) (w *world, update func(revision string, s fact.Strategy), nodes []string) {
	w, update = tenNodes(t, "", rollingUpdate("0", "5"))
	update("b", rollingUpdate("0", "5"))
	for _, a := range w.begins() {
		nodes = append(nodes, a.(*action.CreatePod).Node)
	}
	for len(w.inFlight) > 0 {
		w.finish(0, action.Unknown, false)
	}
	if len(nodes) == 0 || len(w.unanswered) != len(nodes) {
		t.Fatalf("%d of %d creations are in doubt", len(w.unanswered), len(nodes))
	}
	w.pause(true)
	return w, update, nodes
}

func (w *world) pause(paused bool) {
	rollout := w.rolloutOf("logs")
	rollout.Spec.Paused = paused
	w.setRollout(rollout)
}

// Surge is switched off while creations beside the old pods are in doubt: no node loses its daemon
// by it before its turn.
func TestSurgeSwitchedOffWhileCreationsAreInDoubt(t *testing.T) {
	w, update, _ := doubt(t)
	update("b", rollingUpdate("1", "0"))
	if deleted := w.answerAll(action.OK); len(deleted) > 0 {
		t.Errorf("paused, %d working daemons are deleted, the first by %s", len(deleted), deleted[0])
	}
	w.pause(false)
	w.tick(w.cfg.ExpectationsTimeout) // the doubt is over
	w.passTurns(60)
	if n := w.m.PodsOfRevision("logs", "b"); n != 10 {
		t.Errorf("a minute after the doubt %d of 10 nodes have b", n)
	}
}

// A node takes no new pods for a while, and the creation on it is in doubt: its old pod stays until its turn.
func TestNodeUnreachableWhileTheCreationIsInDoubt(t *testing.T) {
	w, _, nodes := doubt(t)
	for _, name := range nodes {
		w.setNode(fact.Node{Name: name, Taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}})
	}
	if deleted := w.answerAll(action.OK); len(deleted) > 0 {
		t.Errorf("paused, %d working daemons are deleted, the first by %s", len(deleted), deleted[0])
	}
}

// One write raises minReadySeconds and changes the template. No pod counts as available for so long, and all work: they
// are not deleted at once for that.
func TestPodsThatAreReadyGoWithinTheLimit(t *testing.T) {
	for _, ready := range []bool{true, false} {
		w := following(t, 20, "{}")
		for name := range w.nodes {
			p := w.podsOf("logs", name)[0]
			p.Ready = ready
			w.setPod(p)
		}
		w.tick(30 * time.Second) // a daemon may be back in a moment
		info := w.sets["logs"]
		info.Generation, info.Revision, info.MinReadySeconds = 2, "b", 3600
		w.setDaemonSet(info, corev1.PodSpec{})
		want := map[bool]int{true: 1, false: 20}[ready]
		if n := len(w.answerAll(action.OK)); n != want {
			t.Errorf("ready %t: %d of 20 pods are deleted at once, want %d", ready, n, want)
		}
	}
}

// A switch from maxSurge to maxUnavailable: a working successor of a pod that has stopped working stays.
func TestSuccessorsThatWorkOutliveTheStrategy(t *testing.T) {
	w, update := tenNodes(t, "", rollingUpdate("0", "5"))
	update("b", rollingUpdate("0", "5"))
	w.begins()
	for range 5 {
		for len(w.inFlight) > 0 {
			w.finish(0, action.OK, true)
		}
		w.ready()
	}
	if n := w.m.PodsOfRevision("logs", "b"); n != 5 {
		t.Fatalf("%d nodes surge, want 5", n)
	}
	for _, p := range maps.Clone(w.pods) {
		switch {
		case p.Revision == "b":
			p.Bound, p.BoundAt, p.Ready, p.ReadySince = true, w.now, true, w.now
		case len(w.podsOf("logs", p.Node)) == 2:
			p.Ready = false
		default:
			continue
		}
		w.setPod(p)
	}
	update("b", rollingUpdate("1", "0"))
	gone := 0
	for _, a := range w.ready() {
		if d, is := a.(*action.DeletePod); is && w.pods[d.PodUID].Ready {
			gone++
		}
	}
	if gone > 0 {
		t.Errorf("%d working daemons of the target go", gone)
	}
	w.passTurns(60)
	if n := w.m.PodsOfRevision("logs", "b"); n != 10 {
		t.Errorf("a minute later %d of 10 nodes have b", n)
	}
}

// Where both work when surge is switched off, the old ones stay: they go in their turn alone.
func TestOldPodsThatWorkOutliveTheStrategy(t *testing.T) {
	w, update := tenNodes(t, "", rollingUpdate("0", "5"))
	update("b", rollingUpdate("0", "5"))
	w.begins()
	for range 5 {
		for len(w.inFlight) > 0 {
			w.finish(0, action.OK, true)
		}
		w.ready()
	}
	for _, p := range maps.Clone(w.pods) {
		if p.Revision == "b" {
			p.Bound, p.BoundAt, p.Ready, p.ReadySince = true, w.now, true, w.now
			w.setPod(p)
		}
	}
	update("b", rollingUpdate("1", "0"))
	gone := map[string]int{}
	for _, a := range w.ready() {
		if d, is := a.(*action.DeletePod); is {
			gone[w.pods[d.PodUID].Revision]++
		}
	}
	if gone["a"] > 0 || gone["b"] != 5 {
		t.Errorf("so many go at once: %v", gone)
	}
}

// While a template waits for its first node, one node gives up its daemon for it, also before the next pod is made.
func TestOneNodeGoesFirstForAll(t *testing.T) {
	w, _ := tenNodes(t, "", rollingUpdate("5", "0"))
	info := w.sets["logs"]
	info.Generation, info.Revision = info.Generation+1, "b"
	info.First.Set("b", fact.FirstIsWanted)
	w.setDaemonSet(info, corev1.PodSpec{})
	gone := 0
	for range 20 {
		for _, a := range w.ready() {
			if _, is := a.(*action.DeletePod); is {
				gone++
			}
		}
		for len(w.inFlight) > 0 {
			w.finish(0, action.OK, true) // and the pod is not gone yet
		}
		w.tick(time.Second)
	}
	if gone != 1 {
		t.Errorf("%d nodes give up their daemon, want 1", gone)
	}
}
