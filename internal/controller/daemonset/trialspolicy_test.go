package daemonset

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A template with which a variant's pod is refused stands at its canary, where a policy is followed. A controller that
// starts then goes on from there: a node that joins gets the stable revision, and the change can be aborted.
func TestAStartWhileAVariantIsRefusedUnderAPolicy(t *testing.T) {
	a, want := newPicky(t, func(p *corev1.Pod) error {
		if threadsOf(p) == "8" && p.Spec.Containers[0].Image == "demo:v2" {
			return invalidPod(p, "v2 has no threads")
		}
		return nil
	})
	a.add(smallCanary(v1alpha1.ApprovalManual))
	stop := a.start(t)
	defer func() { stop() }()
	settled(t, a.fakeAPI, "logs", 4)
	wantDaemons(t, a.fakeAPI, want)
	wantPhase(t, a.policyAPI, v1alpha1.PhaseComplete, "")
	edit(t, a.fakeAPI, "default", "logs", func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Containers[0].Image, ds.Generation = "demo:v2", ds.Generation+1
	})
	a.applies(t, metav1.ConditionFalse, "v2 has no threads")
	wantPhase(t, a.policyAPI, v1alpha1.PhaseProgressing, "")
	stop()
	stop = a.start(t)
	a.applies(t, metav1.ConditionFalse, "v2 has no threads")
	a.add(sizedNode("n4", "s", 4))
	eventually(t, func() string {
		if got := images(a.fakeAPI); got["demo:v1"] != 3 {
			return fmt.Sprintf("the node that joined gets no daemon: there are %v", got)
		}
		return ""
	})
	edit(t, a.fakeAPI, "default", "logs", func(r *v1alpha1.DaemonSetRollout) {
		r.Generation++
		r.Spec.Abort = &v1alpha1.Abort{Revision: r.Status.TargetRevision, Digest: r.Status.TargetDigest}
	})
	wantPhase(t, a.policyAPI, v1alpha1.PhaseRolledBack, "somebody aborted it")
	a.shows(t, "map[demo:v1:5]")
}
