package daemonset

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// A DaemonSet that is deleted and made again takes the rollout of its name over with two
// writes. A controller that dies between them, or before them, leaves no rollout in which
// the stable revision of the old DaemonSet passes for one of the new: nobody has that
// template any more, and nodes would wait for it.
func TestAControllerDiesWhileItTakesARolloutOver(t *testing.T) {
	var allowed int // so many writes of rollouts are taken
	a := policyAPI{newFakeAPI(t), func() bool { allowed--; return allowed < 0 }}
	for i := range 4 {
		a.add(policyNode(i))
	}
	a.add(&v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful", Generation: 1}, Spec: v1alpha1.RolloutPolicySpec{
		Waves: []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "canary"}}, Approval: v1alpha1.ApprovalManual}},
	}})
	may := func(n int) {
		a.mu.Lock()
		defer a.mu.Unlock()
		allowed = n
	}
	const many = 1 << 30
	complete := func(owner string) {
		t.Helper()
		settled(t, a.fakeAPI, "logs", 4)
		eventually(t, func() string {
			r, err := a.GetRollout(t.Context(), "default", "logs")
			if err != nil {
				return err.Error()
			}
			if r.Status.Phase != v1alpha1.PhaseComplete || r.Labels[rollouts.OwnerLabel] != owner {
				return fmt.Sprintf("the rollout of %s is %s: %s", r.Labels[rollouts.OwnerLabel], r.Status.Phase, r.Status.Message)
			}
			return ""
		})
	}
	for round, writes := range []int{many, 0, 1, 2} {
		ds := testDaemonSet("logs")
		ds.UID, ds.Spec.Template.Spec.Containers[0].Image = "", fmt.Sprint("demo:v", round)
		uid := string(a.add(ds).GetUID())
		may(writes)
		if writes < many {
			stop := startWithPolicies(t, a)
			eventually(t, func() string {
				a.mu.Lock()
				defer a.mu.Unlock()
				if allowed >= 0 {
					return "it has not written so much yet"
				}
				return ""
			})
			stop()
			may(many)
		}
		stop := startWithPolicies(t, a)
		complete(uid)
		stop()
		a.erase(kindDaemonSet, "default", "logs")
		for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
			a.erase(kindPod, p.Namespace, p.Name)
		}
		for _, r := range list[*appsv1.ControllerRevision](a.fakeAPI, kindRevision) {
			a.erase(kindRevision, r.Namespace, r.Name)
		}
	}
}
