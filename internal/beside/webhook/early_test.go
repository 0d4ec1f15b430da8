package webhook

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
)

// midway is an API in which a change is under way, by the DaemonSet's own condition, and node-1 has the stable
// revision.
func midway(t *testing.T) (api, *v1alpha1.DaemonSetRollout) {
	t.Helper()
	objects := changing(t)
	rollout := objects[rolloutPath].(*v1alpha1.DaemonSetRollout)
	rollout.Status.Cutoffs = &v1alpha1.Cutoffs{PolicyGeneration: 3}
	ds := objects[setPath].(*appsv1.DaemonSet)
	ds.Status.Conditions = []appsv1.DaemonSetCondition{{Type: v1alpha1.RolloutReconciling,
		Reason: string(v1alpha1.PhaseSoaking)}}
	return objects, rollout
}

// TestAPodWaitsForARolloutThatIsGone: which revision its node is to have is known when the next one is there. As it is
// made it would have the newest, and perhaps before its turn.
func TestAPodWaitsForARolloutThatIsGone(t *testing.T) {
	edited := func(objects api) {
		ds := objects[setPath].(*appsv1.DaemonSet)
		ds.Generation, ds.Status.Conditions = 2, nil
	}
	for name, change := range map[string]func(objects api){
		"somebody has deleted it":     func(objects api) { delete(objects, rolloutPath) },
		"the next one is just made":   func(objects api) { objects[rolloutPath] = unspoken(objects) },
		"it was edited before it was": func(objects api) { edited(objects); delete(objects, rolloutPath) },
		"its policy is gone as well": func(objects api) {
			delete(objects, rolloutPath)
			delete(objects, policiesPath)
		},
	} {
		objects, rollout := midway(t)
		change(objects)
		s := newServer(t, objects, false)
		for range 2 {
			got := made(t, s, objects)
			if got.Allowed || !strings.Contains(got.Result.Message, "DaemonSetRollout") {
				t.Fatalf("%s: the pod is answered with %+v", name, got)
			}
		}
		objects[rolloutPath] = rollout
		got := made(t, s, objects)
		if !got.Allowed || !strings.Contains(string(got.Patch), "agent:0") {
			t.Errorf("%s: when it is back the pod is answered with %+v (%s)", name, got, got.Patch)
		}
		if len(s.lacks) != 0 {
			t.Errorf("%s: it is remembered that there was none", name)
		}
	}
}

// TestAPodDoesNotWaitForARolloutForEver, and what failed to be told once is no reason not to wait another time.
func TestAPodDoesNotWaitForARolloutForEver(t *testing.T) {
	for _, fail := range []bool{false, true} {
		objects, _ := midway(t)
		delete(objects, rolloutPath)
		s := newServer(t, objects, fail)
		of := nameOf(objects[setPath].(*appsv1.DaemonSet))
		now := time.Now()
		s.lacks[of] = lack{since: now.Add(-2 * admit.WaitsForRollout), seen: now}
		if got := made(t, s, objects); got.Allowed == fail || got.Patch != nil {
			t.Errorf("with a failure policy that refuses: %v: the pod is answered with %+v", fail, got)
		}
		s.lacks[of] = lack{since: now.Add(-time.Hour), seen: now.Add(-2 * admit.WaitsForRollout)}
		if got := made(t, s, objects); got.Allowed {
			t.Errorf("another time the pod is answered with %+v", got)
		}
		s.DeleteSet(objects[setPath].(*appsv1.DaemonSet))
		if len(s.lacks) != 0 {
			t.Error("of a DaemonSet that is gone something is remembered")
		}
	}
}

// unspoken is the DaemonSet's rollout before anything is said in it.
func unspoken(objects api) *v1alpha1.DaemonSetRollout {
	out := objects[rolloutPath].(*v1alpha1.DaemonSetRollout).DeepCopy()
	out.Status = v1alpha1.DaemonSetRolloutStatus{}
	return out
}
