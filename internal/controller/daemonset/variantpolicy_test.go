package daemonset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
)

// smallCanary is a policy whose canary are n0 and n1, that goes back after one failure.
func smallCanary(approval v1alpha1.Approval) *v1alpha1.RolloutPolicy {
	none, restarts := intstr.FromInt32(0), int32(1)
	canary := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "name", Operator: metav1.LabelSelectorOpIn, Values: []string{"n0", "n1"}},
	}}
	return &v1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "careful", Generation: 1},
		Spec: v1alpha1.RolloutPolicySpec{
			Waves:   []v1alpha1.Wave{{Name: "canary", Approval: approval, Nodes: canary}},
			Failure: v1alpha1.Failure{Max: &none, Restarts: &restarts, Then: v1alpha1.FailureRollback},
		},
	}
}

// fails has pods fall over that are such.
func fails(a *fakeAPI, such func(*corev1.Container) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = func(p *corev1.Pod) {
		if such(&p.Spec.Containers[0]) {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 5}}
		}
	}
}

// wantPhase waits for a phase of the rollout of logs, with such a message about the DaemonSet as it is now.
func wantPhase(t *testing.T, a policyAPI, want v1alpha1.Phase, words string) (r *v1alpha1.DaemonSetRollout) {
	t.Helper()
	eventually(t, func() string {
		ds, err := a.GetDaemonSet(t.Context(), "default", "logs")
		if err != nil {
			return err.Error()
		}
		r, err = a.GetRollout(t.Context(), "default", "logs")
		if err != nil {
			return err.Error()
		}
		s := &r.Status
		if s.Phase != want || !strings.Contains(s.Message, words) || s.DaemonSetGeneration != ds.Generation {
			return fmt.Sprintf("it is %s: %s %v", s.Phase, s.Message, s.Counts)
		}
		return ""
	})
	return r
}

// approve has somebody approve a step of the target, by such a digest of it.
func approve(t *testing.T, a policyAPI, step string, by func(digest string) string) {
	t.Helper()
	edit(t, a.fakeAPI, "default", "logs", func(r *v1alpha1.DaemonSetRollout) {
		r.Generation++
		r.Spec.Approved = &v1alpha1.StepApproval{
			Revision: r.Status.TargetRevision, Digest: by(r.Status.TargetDigest), Step: step,
		}
	})
}

func asItIs(digest string) string { return digest }

// A change of variants alone stands still when its policy goes, as any other does, and one that failed stays where it
// went. It goes on with consent, which names the whole revision.
func TestAVariantsChangeStandsStillWithoutItsPolicy(t *testing.T) {
	for _, bad := range []bool{false, true} {
		t.Run(fmt.Sprint("bad ", bad), func(t *testing.T) { variantsWithoutPolicy(t, bad) })
	}
}

func variantsWithoutPolicy(t *testing.T, bad bool) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	want := map[string]string{}
	for i := range 8 {
		name := fmt.Sprint("n", i)
		a.add(sizedNode(name, []string{"s", "xl"}[i%2], 4))
		want[name] = []string{"plain", "threads 8"}[i%2]
	}
	a.add(testVariant("large", "xl", threads(8), ""))
	a.add(smallCanary(v1alpha1.ApprovalManual))
	defer startWithVariants(t, a)()
	a.add(testDaemonSet("logs"))
	settled(t, a.fakeAPI, "logs", 8)
	wantDaemons(t, a.fakeAPI, want)
	r := wantPhase(t, a, v1alpha1.PhaseComplete, "")
	if p := r.Status.Policy; p == nil || p.Name != "careful" || p.Approval != v1alpha1.ApprovalManual {
		t.Errorf("the rollout says that it follows %+v", p)
	}
	if bad {
		fails(a.fakeAPI, func(c *corev1.Container) bool { return len(c.Env) > 0 && c.Env[0].Value == "12" })
	}
	edit(t, a.fakeAPI, "default", "large", func(v *v1alpha1.DaemonSetVariant) {
		v.Spec.Patch.Raw, v.Generation = []byte(threads(12)), 2
	})
	if bad {
		wantPhase(t, a, v1alpha1.PhaseRolledBack, "")
	} else {
		wantPhase(t, a, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
		want["n1"] = "threads 12"
	}
	before := wantDaemons(t, a.fakeAPI, want)
	a.erase(kindPolicy, "default", "careful")
	time.Sleep(100 * time.Millisecond)
	if got := changed(before, quiet(t, a.fakeAPI)); len(got) > 0 {
		t.Fatalf("its policy goes, and %v are touched", got)
	}
	if r := wantPhase(t, a, v1alpha1.PhasePaused, "its policy was deleted"); bad {
		if s := &r.Status; strings.Contains(s.Message, "not gone back") || s.Counts["Current"] != 8 {
			t.Errorf("all nodes have what they had, and it says %s: %v", s.Message, s.Counts)
		}
	}
	approve(t, a, v1alpha1.WithoutPolicy, asItIs)
	for _, name := range []string{"n3", "n5", "n7"} {
		if !bad {
			want[name] = "threads 12"
		}
	}
	wantDaemons(t, a.fakeAPI, want)
	quiet(t, a.fakeAPI)
	wantDaemons(t, a.fakeAPI, want)
}

// Consent to go on without a policy names the digest of the revision beside its name: with another one it counts for
// nothing, also while a controller knows where the rollout stands.
func TestConsentWithAnotherDigestIsNone(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	for i := range 6 {
		a.add(sizedNode(fmt.Sprint("n", i), "s", 4))
	}
	a.add(smallCanary(v1alpha1.ApprovalManual))
	defer startWithPolicies(t, a)()
	a.add(testDaemonSet("logs"))
	settled(t, a.fakeAPI, "logs", 6)
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	setImage(t, a.fakeAPI, "logs", "demo:v2")
	wantPhase(t, a, v1alpha1.PhaseWaitingForApproval, "")
	a.erase(kindPolicy, "default", "careful")
	wantPhase(t, a, v1alpha1.PhasePaused, "")
	approve(t, a, v1alpha1.WithoutPolicy, func(string) string { return "sha256:forged" })
	time.Sleep(200 * time.Millisecond)
	if got := images(a.fakeAPI); got["demo:v1"] != 4 {
		t.Fatalf("a forged consent lets it go on: pods have %v", got)
	}
	approve(t, a, v1alpha1.WithoutPolicy, asItIs)
	eventually(t, func() string {
		if got := images(a.fakeAPI); got["demo:v2"] != 6 {
			return fmt.Sprint("pods have ", got)
		}
		return ""
	})
}

// The variants of the stable revision are gone, which somebody deleted while no controller ran. Nobody loses what it
// has to a way back that leads nowhere.
func TestAWayBackToVariantsThatAreGone(t *testing.T) {
	a := policyAPI{newFakeAPI(t), func() bool { return false }}
	want := map[string]string{}
	for i := range 6 {
		name := fmt.Sprint("n", i)
		a.add(sizedNode(name, "xl", 4))
		want[name] = "threads 8"
	}
	a.add(testVariant("large", "xl", threads(8), ""))
	a.add(smallCanary(v1alpha1.ApprovalManual))
	stop := startWithVariants(t, a)
	defer func() { stop() }()
	a.add(testDaemonSet("logs"))
	wantDaemons(t, a.fakeAPI, want)
	wantPhase(t, a, v1alpha1.PhaseComplete, "")
	edit(t, a.fakeAPI, "default", "large", func(v *v1alpha1.DaemonSetVariant) {
		v.Spec.Patch.Raw, v.Generation = []byte(threads(12)), 2
	})
	s := wantPhase(t, a, v1alpha1.PhaseWaitingForApproval, "").Status
	stop()
	var gone *appsv1.ControllerRevision
	for _, r := range list[*appsv1.ControllerRevision](a.fakeAPI, kindRevision) {
		if r.Labels[variants.Label] == content.VariantsOf(s.StableRevision) {
			gone = r
			a.erase(kindRevision, r.Namespace, r.Name)
		}
	}
	stop = startWithVariants(t, a)
	want["n0"], want["n1"] = "threads 12", "threads 12"
	wantDaemons(t, a.fakeAPI, want)
	edit(t, a.fakeAPI, "default", "logs", func(r *v1alpha1.DaemonSetRollout) {
		r.Spec.Abort, r.Generation = &v1alpha1.Abort{Revision: r.Status.TargetRevision, Digest: r.Status.TargetDigest}, 2
	})
	wantPhase(t, a, v1alpha1.PhasePaused, "nothing goes back to revision "+s.StableRevision)
	quiet(t, a.fakeAPI)
	wantDaemons(t, a.fakeAPI, want)
	if gone == nil {
		t.Fatal("the variants were not stored")
	}
	gone.UID, gone.ResourceVersion = "", ""
	a.add(gone)
	want["n0"], want["n1"] = "threads 8", "threads 8"
	wantDaemons(t, a.fakeAPI, want)
	wantPhase(t, a, v1alpha1.PhaseRolledBack, "")
}
