package contents

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// besides has another controller make the pods that are missing, each of the revision that the last deletion on its node
// was for, or of the stable one.
func (w *world) besides(next map[string]string) {
	for i := range 5 {
		node := fmt.Sprintf("n%d", i)
		if _, is := w.pods[node]; is {
			continue
		}
		st := w.status()
		revision := st.StableRevision
		if revision == "" {
			revision = st.TargetRevision
		}
		if to, is := next[node]; is {
			revision = to
		}
		if revision == "" {
			continue // the webhook has it made later
		}
		w.version++
		p := fact.Pod{UID: types.UID(fmt.Sprint("pod", w.version)), Name: "agent-" + node, Owner: w.set.UID, Node: node,
			Bound: true, Revision: revision, Created: w.now, BoundAt: w.now}
		w.pods[node] = p
		w.book.Step(p)
	}
}

// TestContentBesideAnotherController: each edit, and each turning on and off, replaces each pod once and ends.
func TestContentBesideAnotherController(t *testing.T) {
	w := newWorld(t, careful)
	w.guest, w.pods, w.stored = true, map[string]fact.Pod{}, nil
	w.start(true)
	deleted, next := map[string]int{}, map[string]string{}
	w.deletes = func(a *action.DeletePod) {
		deleted[a.Node]++
		next[a.Node] = a.Next
	}
	passes := func(what string, each int) {
		t.Helper()
		for range 120 {
			w.besides(next)
			w.second()
		}
		st := w.status()
		if st.Phase != v1alpha1.PhaseComplete || st.StableRevision != st.TargetRevision {
			t.Errorf("%s: it is %s with %s and %s: %s", what, st.Phase, st.StableRevision, st.TargetRevision, st.Message)
		}
		for i := range 5 {
			node := fmt.Sprintf("n%d", i)
			if deleted[node] != each || w.pods[node].Revision != st.StableRevision {
				t.Errorf("%s: the pod of %s is of %q and was replaced %d times, want %q and %d", what, node,
					w.pods[node].Revision, deleted[node], st.StableRevision, each)
			}
		}
		clear(deleted)
	}
	passes("new", 0)
	w.write("better")
	passes("an edit", 1)
	w.policy = w.compile(soakingCanary(plain))
	w.tellPolicy()
	for range 600 {
		w.besides(next)
		w.second()
	}
	passes("turned off", 1)
	w.policy = w.compile(careful)
	w.tellPolicy()
	passes("turned on", 1)
}
