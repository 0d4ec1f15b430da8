package rollouts

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A rollout whose DaemonSet has OnDelete by now follows nothing, whatever is written into it,
// and says so in place of what it waited for before. What has failed stays in it.
func TestARolloutThatOnDeleteIgnoresSaysSo(t *testing.T) {
	w := newWorld()
	manual := func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }
	w.daemonSet("logs", "u1")
	r := w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{
		Phase: v1alpha1.PhasePaused, Message: "its policy was deleted; approve step WithoutPolicy to go on without one", StableRevision: "a", TargetRevision: "b",
		FailedRevisions: []v1alpha1.FailedRevision{{Revision: "z"}},
	}, v1alpha1.DaemonSetRolloutSpec{})
	for range 2 {
		w.daemonSet("logs", "u1", manual)
		jobs := w.Jobs()
		if len(jobs) != 1 || jobs[0].Left == nil {
			t.Fatalf("jobs: %+v", jobs)
		}
		next := jobs[0].Left
		if s := next.Status; !strings.Contains(s.Message, "OnDelete") || s.ObservedGeneration != r.Generation || s.StableRevision != "a" || s.TargetRevision != "b" || len(s.FailedRevisions) != 1 {
			t.Errorf("it says %+v", s)
		}
		next.ResourceVersion = "1000" + next.ResourceVersion
		w.Step(Result{Job: jobs[0], Rollout: next})
		if jobs := w.Jobs(); len(jobs) > 0 {
			t.Errorf("it says it again: %+v", jobs[0])
		}
		// Somebody approves: the word is heard, and changes nothing.
		r = next.DeepCopy()
		r.Generation, r.ResourceVersion = r.Generation+1, "1"+r.ResourceVersion
		r.Spec.Approved = &v1alpha1.StepApproval{Revision: "b", Step: v1alpha1.AllSteps}
		w.Step(Rollout{Object: r})
		if _, told := w.rows.told["u1"]; told {
			t.Error("the DaemonSet follows a rollout")
		}
	}
	if jobs := w.Jobs(); len(jobs) != 1 || jobs[0].Left == nil || metav1.Object(jobs[0].Left).GetUID() != r.UID {
		t.Errorf("jobs: %+v", jobs)
	}
}

// Who aborts a change that OnDelete holds up was told that all nodes go back. The word counts when the change would go on.
func TestAnAbortThatOnDeleteIgnoresIsNotForgotten(t *testing.T) {
	w := newWorld()
	manual := func(ds *appsv1.DaemonSet) { ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }
	w.daemonSet("logs", "u1", manual)
	r := w.rollout("logs", "u1", v1alpha1.DaemonSetRolloutStatus{
		Phase: v1alpha1.PhaseProgressing, StableRevision: "a", TargetRevision: "b", ObservedGeneration: 1,
	}, v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "b"}})
	r = r.DeepCopy()
	r.Generation, r.ResourceVersion = 2, "1"+r.ResourceVersion
	w.Step(Rollout{Object: r})
	for _, want := range []int64{1, 3} {
		jobs := w.Jobs()
		if len(jobs) != 1 || jobs[0].Left == nil {
			t.Fatalf("jobs: %+v", jobs)
		}
		next := jobs[0].Left
		if got, told := next.Status.ObservedGeneration, strings.HasSuffix(next.Status.Message, "with RollingUpdate it is aborted"); got != want || told != (want == 1) {
			t.Errorf("generation %d of %d is seen, and it says %s", got, next.Generation, next.Status.Message)
		}
		next.ResourceVersion = "1" + next.ResourceVersion
		w.Step(Result{Job: jobs[0], Rollout: next})
		if jobs := w.Jobs(); len(jobs) > 0 {
			t.Errorf("it says it again: %+v", jobs[0])
		}
		// Somebody takes the abort back.
		r = next.DeepCopy()
		r.Generation, r.ResourceVersion, r.Spec.Abort = 3, "1"+r.ResourceVersion, nil
		if want == 1 {
			w.Step(Rollout{Object: r})
		}
	}
}
