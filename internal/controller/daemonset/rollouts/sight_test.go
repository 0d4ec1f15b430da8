package rollouts

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

func follows(ds *appsv1.DaemonSet) {
	ds.Status.Conditions = []appsv1.DaemonSetCondition{{Type: fact.ConditionProgressing, Reason: fact.FollowsPolicy + "Soaking"}}
}

func (w *world) standsStill(t *testing.T, uid types.UID, why string) fact.Rollout {
	t.Helper()
	got, told := w.rows.told[uid]
	if !told || got.Following != course.Lost || got.Why != why {
		t.Errorf("%s is told %t: %v %q, want that it stands still: %q", uid, told, got.Following, got.Why, why)
	}
	return got
}

// With nothing to read, those stand still that are known to follow a policy, and no
// others.
func TestWhoStandsStillWhenNothingCanBeRead(t *testing.T) {
	w := newWorld()
	w.Step(Sight{Policies: "may not list", Rollouts: "may not list either"})
	w.daemonSet("says-so", "u1", follows)
	w.daemonSet("free", "u2")
	if got := w.standsStill(t, "u1", "may not list"); !got.Unread {
		t.Error("its rollout passes for one that is not there")
	}
	if got, told := w.rows.told["u2"]; told {
		t.Errorf("one that no policy ever matched is told %+v", got)
	}
	w.rows.statuses["u1"] = v1alpha1.DaemonSetRolloutStatus{StableRevision: "guessed", TargetRevision: "b"}
	w.daemonSet("says-so", "u1", follows) // its template changes meanwhile
	if got := w.standsStill(t, "u1", "may not list"); !got.Unread {
		t.Error("its rollout passes for one that is not there")
	}

	// Both are read, and the rollout is another than was guessed.
	w.policy(t, "first", "")
	w.rollout("says-so", "u1", v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b"}, v1alpha1.DaemonSetRolloutSpec{})
	w.rows.gone = nil
	w.Step(Sight{})
	if got := w.rows.told["u1"]; got.Following != course.Followed || got.Unread || got.Status.StableRevision != "a" {
		t.Errorf("it is told %+v", got)
	}
	if !slices.Contains(w.rows.gone, "u1") {
		t.Errorf("what was guessed is not forgotten: %v", w.rows.gone)
	}
}

// A watch that is lost later: what follows a policy, or has a rollout, stands still and
// keeps both.
func TestWhoStandsStillWhenAWatchIsLost(t *testing.T) {
	w := newWorld()
	w.policy(t, "first", "selector: {matchLabels: {tier: logs}}")
	ds := w.daemonSet("logs", "u1")
	w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "a"}, v1alpha1.DaemonSetRolloutSpec{})
	w.daemonSet("net", "u2")
	for _, s := range []Sight{{Policies: "it is lost"}, {Rollouts: "it is lost"}} {
		w.Step(s)
		if got := w.standsStill(t, "u1", "it is lost"); got.Policy == nil || got.PolicyUID != "first" || got.Unread || got.Status == nil {
			t.Errorf("it is told %+v", got)
		}
		if _, told := w.rows.told["u2"]; told {
			t.Error("one that follows no policy stands still")
		}
		w.Step(Sight{})
		if got := w.rows.told["u1"]; got.Following != course.Followed {
			t.Errorf("it does not go on: %+v", got)
		}
	}
	// Who takes the labels away while nobody can see the policies gets no further.
	w.Step(Sight{Policies: "it is lost"})
	changed := ds.DeepCopy()
	changed.Labels, changed.ResourceVersion, changed.Generation = nil, "90", 90
	w.Step(DaemonSet{Object: changed})
	w.standsStill(t, "u1", "it is lost")
	for _, j := range w.Jobs() {
		if j.Delete != nil {
			t.Error("its rollout is deleted")
		}
	}
	w.Step(Sight{})
	if _, told := w.rows.told["u1"]; told {
		t.Error("it follows a policy that does not choose it")
	}
}
