package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Whoever deletes a rollout that waits for approval lets nothing begin by that, also when
// no controller runs at that moment: the next rollout is paused and says why. It goes on
// when somebody says so, from the stable revision that there was.
func TestARolloutThatIsDeletedDoesNotGoOn(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) { deleteInTheMiddle(t, restart) })
	}
}

func deleteInTheMiddle(t *testing.T, restart bool) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	frozen, wrong := "", []string{}
	a.refuseCreate = func(p *corev1.Pod) error { // with the API's lock held
		if hash := p.Labels[appsv1.ControllerRevisionHashLabelKey]; frozen != "" && hash != frozen {
			wrong = append(wrong, pod.TargetNode(p)+" was given "+hash)
		}
		return nil
	}
	for i := range 6 {
		a.add(policyNode(i))
	}
	a.add(testDaemonSet("logs"))
	a.add(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful", Generation: 1}, Spec: v1alpha1.RolloutPolicySpec{
		Waves: []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "canary"}}, Approval: v1alpha1.ApprovalManual}},
	}})
	stop := startWithPolicies(t, a)
	defer func() { stop() }()
	is := func(phase v1alpha1.Phase, words string) *v1alpha1.DaemonSetRollout {
		t.Helper()
		var r *v1alpha1.DaemonSetRollout
		eventually(t, func() string {
			var err error
			if r, err = a.GetRollout(t.Context(), "default", "logs"); err != nil {
				return err.Error()
			}
			ds, err := a.GetDaemonSet(t.Context(), "default", "logs")
			if err != nil {
				return err.Error()
			}
			if s := &r.Status; s.Phase != phase || !strings.Contains(s.Message, words) || s.DaemonSetGeneration != ds.Generation {
				return fmt.Sprintf("the rollout is %s: %s", s.Phase, s.Message)
			}
			return ""
		})
		return r
	}
	settled(t, a.fakeAPI, "logs", 6)
	is(v1alpha1.PhaseComplete, "")
	setImage(t, a.fakeAPI, "logs", "demo:v2")
	waiting := is(v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	a.mu.Lock()
	frozen = waiting.Status.StableRevision
	a.mu.Unlock()
	if restart {
		// The next controller knows of it by the DaemonSet's own condition.
		eventually(t, func() string {
			ds, err := a.GetDaemonSet(t.Context(), "default", "logs")
			if err != nil {
				return err.Error()
			}
			if want := fact.FollowsPolicy + string(v1alpha1.PhaseWaitingForApproval); !slices.ContainsFunc(ds.Status.Conditions, func(c appsv1.DaemonSetCondition) bool { return c.Reason == want }) {
				return fmt.Sprintf("the conditions are %v", ds.Status.Conditions)
			}
			return ""
		})
		stop()
	}
	if err := a.DeleteRollout(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	if restart {
		stop = startWithPolicies(t, a)
	}
	paused := is(v1alpha1.PhasePaused, "its DaemonSetRollout was deleted while it was WaitingForApproval")
	if !paused.Spec.Paused || paused.Status.StableRevision != waiting.Status.StableRevision || paused.Status.TargetRevision != waiting.Status.TargetRevision {
		t.Errorf("the next rollout is %+v, %+v", paused.Spec, paused.Status)
	}
	edit(t, a.fakeAPI, "default", "logs", func(r *v1alpha1.DaemonSetRollout) { r.Spec.Paused, r.Generation = false, 2 })
	is(v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	a.mu.Lock()
	if frozen = ""; len(wrong) > 0 {
		t.Errorf("nobody approved anything, and %q", wrong)
	}
	a.mu.Unlock()
	edit(t, a.fakeAPI, "default", "logs", func(r *v1alpha1.DaemonSetRollout) {
		r.Spec.Approved, r.Generation = &v1alpha1.StepApproval{Revision: r.Status.TargetRevision, Digest: r.Status.TargetDigest, Step: v1alpha1.AllSteps}, 3
	})
	is(v1alpha1.PhaseComplete, "")
}
