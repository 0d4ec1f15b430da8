package contents

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// forget has a program that knows no content have written where the rollout stands: it took all pods of the template for
// its own.
func (w *world) forget() {
	w.stored = w.stored.DeepCopy()
	w.stored.Content, w.stored.Phase, w.stored.Step = nil, complete, ""
	w.stored.StableRevision, w.stored.TargetRevision = "t1", "t1"
	w.stored.TargetDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000001"
}

// A program that knows no content ran for a while, or nobody wanted content. It said that the template is everywhere,
// and replaced no pod. After that nothing is replaced either, and what was taken back does not go out.
func TestContentThatWasNotSpokenOfForAWhileIsThatOfThePods(t *testing.T) {
	const turnedOff = "content was off, and is on again"
	for name, forget := range map[string]func(w *world){
		"a program that knows no content": func(w *world) {
			w.forget()
			w.start(true)
		},
		"... and the namespace is read later": func(w *world) {
			w.forget()
			w.start(false)
			w.pass(time.Minute)
			w.read()
			w.settle()
		},
		turnedOff: func(w *world) {
			w.follows(plain)
			w.pass(10 * time.Minute)
			w.wantPhase(complete, "t1")
			w.follows(careful)
			w.settle()
		},
	} {
		for _, bad := range []bool{false, true} {
			if bad && name == turnedOff {
				continue // without content the template reads what is bad: that is a change, which fails
			}
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, careful)
				w.pass(20 * time.Minute)
				before, phase := w.status().StableRevision, complete
				if bad {
					w.write("bad")
					w.pass(20 * time.Minute)
					phase = v1alpha1.PhaseRolledBack
				}
				w.wantRuns(map[string]int{"good": 5})
				deleted := 0
				w.deletes = func(*action.DeletePod) { deleted++ }
				forget(w)
				w.pass(20 * time.Minute)
				w.wantRuns(map[string]int{"good": 5})
				if s := w.status(); deleted != 0 || s.StableRevision != before || s.Phase != phase {
					t.Errorf("%d pods were deleted; it is %s: %s, stable is %s, and was %s", deleted, s.Phase, s.Message,
						s.StableRevision, before)
				}
				w.deletes = nil
				w.book.Step(podGone(w, "n3"))
				w.settle()
				w.wantRuns(map[string]int{"good": 5})
				w.write("better")
				w.pass(20 * time.Minute)
				w.wantPhase(complete, "5 of 5")
				w.wantRuns(map[string]int{"better": 5})
			})
		}
	}
}
