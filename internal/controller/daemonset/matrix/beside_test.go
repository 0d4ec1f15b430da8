package matrix

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// isWritten reports whether the step of a node has begun, for who knows nothing but what the API holds.
func (w *world) isWritten(node string) bool {
	st, policy := w.written["logs"], w.policies["logs"]
	open, known := policy.StepNamed(st.Step)
	return known && st.Cutoffs != nil && policy.StepBy(node, nil, st.Cutoffs.Steps).Compare(open) <= 0
}

// churnBeside has a node join or leave, and the other controller make the pods that are missing by what is written.
func (w *world) churnBeside(r *rand.Rand) {
	if names := slices.Sorted(maps.Keys(w.nodes)); len(names) < 8 {
		w.setNode(fact.Node{Name: fmt.Sprint("j-", r.IntN(1000))})
	} else if r.IntN(3) == 0 {
		gone := names[r.IntN(len(names))]
		for _, p := range w.podsOf("logs", gone) {
			w.dropPod(p.UID)
		}
		w.dropNode(gone)
	}
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if len(w.podsOf("logs", name)) > 0 {
			continue
		}
		revision := "a"
		if w.isWritten(name) {
			revision = "b"
		}
		w.made++
		uid := types.UID(fmt.Sprint("made-", w.made))
		w.setPod(fact.Pod{UID: uid, Name: string(uid), Owner: "logs", Node: name, Revision: revision, Bound: true,
			Ready: true, ReadySince: w.now, Created: w.now})
	}
}

// TestNoNodeIsTakenThatIsNotWritten: beside another controller any replica answers for a pod, by what is written and
// not by nodes that it may not have seen. So where nodes come and go, a node that comes into a step by number waits until
// that is written: its pod would come back as it was.
func TestNoNodeIsTakenThatIsNotWritten(t *testing.T) {
	taken := 0
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := followingBy(t, row.Config{Guest: true}, 8, "waves: [{name: canary, count: 3, approval: Manual}]\n"+
			"failure: {startDeadline: 1m}")
		w.passTurns(20)
		w.update()
		for range 200 {
			w.churnBeside(r)
			w.ready()
			for i := len(w.inFlight) - 1; i >= 0; i-- {
				switch a := w.inFlight[i].(type) {
				case *action.DeletePod:
					taken++
					if a.Next == "b" && !w.isWritten(a.Node) {
						t.Fatalf("seed %d: %s is taken, and the API holds %+v", seed, a.Node, w.written["logs"].Cutoffs)
					}
				case *action.UpdateRollout:
					if r.IntN(2) == 0 {
						continue
					}
				}
				w.finish(i, action.OK, true)
			}
			w.tick(time.Second)
			w.live()
		}
	}
	if taken < 50 {
		t.Errorf("%d pods were taken", taken)
	}
}

// TestNoNodeIsTakenByAPolicyThatIsNotWritten: who answers for a pod goes by the policy that the rollout's status names.
// The next one may have its generation and its steps, as one has that was deleted and made again.
func TestNoNodeIsTakenByAPolicyThatIsNotWritten(t *testing.T) {
	const policy = "waves: [{name: canary, count: 6, approval: Manual}]"
	w := followingBy(t, row.Config{Guest: true}, 8, policy)
	follow := func(uid types.UID) {
		info := w.rolloutOf("logs")
		info.Followed, info.PolicyGeneration = &v1alpha1.FollowedPolicy{Name: "logs", UID: uid}, 1
		w.setRollout(info)
		w.setPolicy(t, policy)
	}
	follow("before")
	w.passTurns(20)
	w.update()
	taken := 0
	for turn := range 20 {
		if turn == 3 {
			follow("again")
		}
		w.churnBeside(rand.New(rand.NewPCG(1, 1)))
		for _, a := range w.ready() {
			if a, is := a.(*action.DeletePod); is && a.Next == "b" {
				taken++
				if is, want := w.written["logs"].Policy.UID, w.rolloutOf("logs").Followed.UID; is != want {
					t.Errorf("%s is taken by policy %s, and the API names %s", a.Node, want, is)
				}
			}
		}
		for len(w.inFlight) > 0 {
			w.finish(0, action.OK, true)
		}
		w.tick(time.Second)
		w.live()
	}
	if taken < 6 {
		t.Errorf("%d pods were taken", taken)
	}
}
