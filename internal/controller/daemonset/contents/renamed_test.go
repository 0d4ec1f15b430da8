package contents

import (
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// excluding has careful exclude another object, and those of both are content.
func excluding(p string) string { return strings.Replace(p, "names: [ca]", "names: [token]", 1) }

// failing is a world whose template t2 has failed with what its ConfigMap holds.
func failing(t *testing.T, policy string) *world {
	w := newWorld(t, policy)
	w.pass(10 * time.Minute)
	w.set = w.set.DeepCopy()
	w.set.Generation++
	w.book.Tell(DaemonSet{Object: w.set})
	w.write("bad")
	w.tellSet()
	w.settle()
	w.pass(20 * time.Minute)
	if s := w.status(); len(s.FailedRevisions) != 1 {
		t.Fatalf("it has not failed: %s: %s", s.Phase, s.Message)
	}
	return w
}

// follows has another policy be followed.
func (w *world) follows(policy string) {
	w.policy = w.compile(policy)
	w.tellPolicy()
}

// A template has failed with what its ConfigMap holds. Neither changes; the policy does: content becomes a part of
// revisions, is none any more, or of other objects. Nobody asks for what failed.
func TestWhatFailedDoesNotGoOutAgainByAnEditOfThePolicy(t *testing.T) {
	halting := func(p string) string { return strings.Replace(p, "then: Rollback", "then: Halt", 1) }
	for name, c := range map[string]struct{ before, after string }{
		"content is turned on":            {plain, careful},
		"another object is excluded":      {careful, excluding(careful)},
		"content is turned off":           {careful, plain},
		"content is turned on, halted":    {halting(plain), halting(careful)},
		"content is turned off, halted":   {halting(careful), halting(plain)},
		"nothing, which is the reference": {careful, careful},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := failing(t, c.before)
				before, runs := w.status(), w.runs()["bad"]
				w.assigned = func(a *action.CreatePod) {
					if content.TemplateOf(a.Revision) == "t2" && w.reads(a.Revision) == "bad" {
						t.Errorf("%s has failed, and %s gets %s", before.TargetRevision, a.Node, a.Revision)
					}
				}
				if restarts {
					w.policy = w.compile(c.after)
					w.start(true)
				} else {
					w.follows(c.after)
				}
				for range 10 {
					w.pass(10 * time.Minute)
				}
				s := w.status()
				if s.Phase != before.Phase || !strings.Contains(s.Message, "container agent ends") || w.runs()["bad"] > runs {
					t.Errorf("restarts: %t: it was %s: %s; it is %s: %s; the pods read %v", restarts, before.Phase, before.Message, s.Phase,
						s.Message, w.runs())
				}
				// Asked for, it goes out once more.
				w.assigned = nil
				made := w.restarts
				w.book.Step(fact.Rollout{UID: w.set.UID, PolicyUID: "p", Policy: w.policy, Status: w.stored, Spec: v1alpha1.DaemonSetRolloutSpec{
					Retry: &v1alpha1.Retry{Revision: s.TargetRevision, Digest: w.stored.TargetDigest, Count: 1}}})
				w.pass(10 * time.Minute)
				if w.restarts == made && s.Phase == v1alpha1.PhaseRolledBack {
					t.Errorf("restarts: %t: somebody retries it, and nobody gets it; it is %s: %s", restarts, w.status().Phase, w.status().Message)
				}
			})
		}
	}
}

// What is mended together with the edit of the policy goes out.
func TestWhatIsMendedGoesOutAfterAnEditOfThePolicy(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"content is turned on":       {plain, careful},
		"another object is excluded": {careful, excluding(careful)},
		"content is turned off":      {careful, plain},
		"nothing":                    {careful, careful},
	} {
		t.Run(name, func(t *testing.T) {
			w := failing(t, c.before)
			if c.before != plain {
				w.write("mended")
			}
			w.follows(c.after)
			w.settle()
			w.write("mended") // what was written while content was off, nobody has compared
			for range 10 {
				w.pass(10 * time.Minute)
			}
			w.wantPhase(complete, "5 of 5")
			if runs := w.runs(); runs["mended"] != 5 {
				t.Errorf("pods read %v, want what was mended", runs)
			}
		})
	}
}

// Content that is turned on has failed, and is turned off: the stable revision, which is the newest again, has not.
func TestStableRevisionHasNotFailedAfterAnEditOfThePolicy(t *testing.T) {
	w := newWorld(t, plain)
	w.pass(10 * time.Minute)
	w.write("bad")
	w.follows(careful)
	w.pass(10 * time.Minute)
	w.wantPhase(v1alpha1.PhaseRolledBack, "container agent ends")
	w.follows(plain)
	w.pass(10 * time.Minute)
	w.wantPhase(complete, "have revision t1")
	for _, f := range w.status().FailedRevisions {
		if f.Revision == w.status().StableRevision {
			t.Errorf("the stable revision is said to have failed: %s", f.Why)
		}
	}
}
