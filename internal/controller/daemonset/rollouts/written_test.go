package rollouts

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// A rollout that is made and deleted while no watch is open is never told of. That the API does not have it when it is
// written says so, when its end could have been heard of for a while.
func TestARolloutOfWhoseEndNoNewsCome(t *testing.T) {
	status := v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, TargetRevision: "b"}
	w := newWorld()
	w.policy(t, "first", "")
	w.daemonSet("logs", "u1")
	r := w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{})
	w.rows.statuses["u1"] = status
	at := noon
	writes := func(after time.Duration, was *v1alpha1.DaemonSetRollout, out action.Outcome) bool {
		at = at.Add(after)
		w.Step(Now{at})
		w.Step(Written{Was: was, Outcome: out})
		return w.rows.told["u1"].Spec.Paused
	}
	other := r.DeepCopy()
	other.UID = "other"
	for _, e := range []struct {
		after time.Duration
		was   *v1alpha1.DaemonSetRollout
		out   action.Outcome
	}{
		{0, r, action.Gone}, {newsWithin - time.Second, r, action.Gone}, {newsWithin, r, action.Failed},
		{0, other, action.Gone}, {0, nil, action.Gone},
	} {
		if writes(e.after, e.was, e.out) {
			t.Fatalf("after a write of %v, %s, it counts as deleted", e.was, e.out)
		}
	}
	if !writes(0, r, action.Gone) {
		t.Fatal("it counts as there")
	}
	why := w.rows.told["u1"].PausedWhy
	if !strings.HasPrefix(why, "its DaemonSetRollout was deleted while it was Progressing;") {
		t.Errorf("the next one is paused because %q", why)
	}
	w.Step(Written{Is: r}) // an answer from before
	if !w.rows.told["u1"].Spec.Paused {
		t.Error("an answer that comes late has it be there again")
	}
}

// What was heard of the rollout since begins the time anew: it was there.
func TestNewsOfARolloutThatWasMissing(t *testing.T) {
	w := newWorld()
	w.policy(t, "first", "")
	w.daemonSet("logs", "u1")
	status := v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, TargetRevision: "b"}
	r := w.rollout("logs", "u1", status, v1alpha1.DaemonSetRolloutSpec{})
	w.Step(Now{noon})
	w.Step(Written{Was: r, Outcome: action.Gone})
	w.Step(Now{noon.Add(newsWithin)})
	w.Step(Written{Was: r, Is: r})
	w.Step(Written{Was: r, Outcome: action.Gone})
	if w.rows.told["u1"].Spec.Paused {
		t.Error("it counts as deleted, and was written in between")
	}
}

func TestOutcomeOfAWrite(t *testing.T) {
	kind := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "daemonsetrollouts"}
	unserved := apierrors.NewGenericServerResponse(404, "put", kind, "logs", "404 page not found", 0, true)
	for name, c := range map[string]struct {
		err  error
		want action.Outcome
	}{
		"no such rollout": {apierrors.NewNotFound(kind, "logs"), action.Gone},
		"no such kind":    {unserved, action.Failed},
		"another error":   {errors.New("no answer"), action.Failed},
	} {
		if got := OutcomeOf(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
