package conditions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/testenv/gitops"
)

// set is a DaemonSet of twelve nodes, all of them available, of which so many have the newest template.
func set(taken bool, updated int32) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", UID: "u", ResourceVersion: "7", Generation: 2},
		Status: appsv1.DaemonSetStatus{
			ObservedGeneration: 2, DesiredNumberScheduled: 12, CurrentNumberScheduled: 12, NumberReady: 12,
			NumberAvailable: 12, UpdatedNumberScheduled: updated,
			Conditions: []appsv1.DaemonSetCondition{{Type: "example.com/Mine", Status: corev1.ConditionTrue}},
		},
	}
	ds.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	if taken {
		ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		ds.Annotations = map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}
	}
	return ds
}

// rollout is that of the DaemonSet.
func rollout(phase v1alpha1.Phase, seen int64) *v1alpha1.DaemonSetRollout {
	r := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{
		Phase: phase, DaemonSetGeneration: seen, StableRevision: "a", TargetRevision: "b", Step: "canary", Message: "so it is",
	}}
	if phase == v1alpha1.PhaseHalted || phase == v1alpha1.PhaseRolledBack {
		r.Status.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "b", Why: "failed on 2 of 12 nodes"}}
	}
	return r
}

// written is the DaemonSet after the patch has been applied, as an API server would.
func written(t *testing.T, ds *appsv1.DaemonSet, patch []byte) *appsv1.DaemonSet {
	t.Helper()
	raw, err := json.Marshal(ds)
	if err != nil {
		t.Fatal(err)
	}
	raw, err = strategicpatch.StrategicMergePatch(raw, patch, appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	out := &appsv1.DaemonSet{}
	err = json.Unmarshal(raw, out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestWhatToolsSee: what kstatus and Argo CD make of a DaemonSet in each phase of its change.
func TestWhatToolsSee(t *testing.T) {
	for _, c := range []struct {
		phase      v1alpha1.Phase
		seen       int64
		flux, argo string
		says       string
	}{
		{v1alpha1.PhaseProgressing, 2, "InProgress", "Progressing", "revision b is at step canary"},
		{v1alpha1.PhaseSoaking, 2, "InProgress", "Progressing", "revision b is at step canary"},
		{v1alpha1.PhaseWaitingForApproval, 2, "InProgress", "Suspended", "revision b is at step canary"},
		{v1alpha1.PhaseOutsideWindow, 2, "InProgress", "Suspended", "revision b is at step canary"},
		{v1alpha1.PhasePaused, 2, "InProgress", "Suspended", "so it is"},
		{v1alpha1.PhaseHalted, 2, "Failed", "Degraded", "revision b failed on 2 of 12 nodes"},
		{v1alpha1.PhaseRolledBack, 2, "Failed", "Degraded", "revision b failed on 2 of 12 nodes"},
		{v1alpha1.PhaseComplete, 2, "Current", "Healthy", "Every node that can"},
		{v1alpha1.PhaseComplete, 1, "InProgress", "Progressing", "no controller has taken note"},
		{"", 0, "InProgress", "Progressing", "no controller has taken note"},
	} {
		t.Run(fmt.Sprintf("%s of generation %d", c.phase, c.seen), func(t *testing.T) {
			ds, r := set(true, 12), rollout(c.phase, c.seen)
			if c.phase == "" {
				r = nil
			}
			patch, err := Patch(ds, Of(ds, r, ""), time.Now())
			if err != nil || patch == nil {
				t.Fatalf("the patch is %s (%v)", patch, err)
			}
			ds = written(t, ds, patch)
			health, message := gitops.ArgoCD(t, ds)
			if flux := gitops.Flux(t, ds); flux != c.flux || health != c.argo || !strings.Contains(message, c.says) {
				t.Errorf("kstatus says %s, Argo CD %s: %s", flux, health, message)
			}
			if r == nil || c.seen < 2 {
				return
			}
			r.TypeMeta = metav1.TypeMeta{APIVersion: "everynode.io/v1alpha1", Kind: "DaemonSetRollout"}
			health, _ = gitops.ArgoCD(t, r)
			if health != c.argo {
				t.Errorf("of the rollout Argo CD says %s", health)
			}
		})
	}
}

// TestWhatToolsSeeOfOthers: a DaemonSet that follows no policy is as it is without us.
func TestWhatToolsSeeOfOthers(t *testing.T) {
	onDelete, absent, unseen, fresh := set(false, 0), set(true, 12), set(false, 12), set(true, 12)
	onDelete.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	absent.Status.NumberAvailable = 11
	absent.Status.Conditions = Of(absent, rollout(v1alpha1.PhaseComplete, 2), "")
	unseen.Status.ObservedGeneration = 1
	for _, c := range []struct {
		name string
		ds   *appsv1.DaemonSet
		want string
	}{
		{"all have the newest template", set(false, 12), "Healthy"}, {"some have", set(false, 11), "Progressing"},
		{"the author's own OnDelete", onDelete, "Healthy"}, {"nobody has seen it", unseen, "Progressing"},
		{"complete, and one is not available", absent, "Progressing"}, {"nobody leads", fresh, "Progressing"},
	} {
		health, message := gitops.ArgoCD(t, c.ds)
		if health != c.want || message == "" {
			t.Errorf("%s: Argo CD says %s: %s", c.name, health, message)
		}
	}
	if got := Of(onDelete, rollout(v1alpha1.PhaseHalted, 2), ""); got != nil {
		t.Errorf("a DaemonSet that is not taken over gets %v", got)
	}
}

// TestWhatIsWritten: nothing where nothing differs, the time of the last change of the status alone, and never what
// others write.
func TestWhatIsWritten(t *testing.T) {
	ds, begin := set(true, 12), time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	for hours, c := range []struct {
		phase   v1alpha1.Phase
		step    string
		written bool
		times   string
	}{
		{v1alpha1.PhaseProgressing, "canary", true, "0 0"},
		{v1alpha1.PhaseProgressing, "canary", false, "0 0"},
		{v1alpha1.PhaseProgressing, "zones/a", true, "0 0"},
		{v1alpha1.PhaseHalted, "zones/a", true, "3 3"},
		{v1alpha1.PhaseRolledBack, "zones/a", true, "3 3"},
		{v1alpha1.PhaseComplete, "zones/a", true, "3 5"},
	} {
		r := rollout(c.phase, 2)
		r.Status.Step = c.step
		r.Status.Message = fmt.Sprint(hours) // as a count would
		patch, err := Patch(ds, Of(ds, r, ""), begin.Add(time.Duration(hours)*time.Hour))
		if err != nil || (patch != nil) != c.written {
			t.Fatalf("%s %s: the patch is %s (%v)", c.phase, c.step, patch, err)
		}
		if patch != nil {
			ds = written(t, ds, patch)
		}
		var times []string
		for _, of := range types {
			times = append(times, fmt.Sprint(find(ds.Status.Conditions, of).LastTransitionTime.Sub(begin).Hours()))
		}
		if got := strings.Join(times, " "); got != c.times || find(ds.Status.Conditions, "example.com/Mine") == nil {
			t.Errorf("%s: they changed at %s: %+v", c.phase, got, ds.Status.Conditions)
		}
	}
	patch, err := Patch(ds, Of(ds, nil, ""), begin)
	if err != nil || patch != nil {
		t.Errorf("where the rollout is gone they become %s (%v)", patch, err)
	}
	delete(ds.Annotations, admit.UpdateStrategy)
	patch, err = Patch(ds, Of(ds, nil, ""), begin)
	if err != nil || patch == nil {
		t.Fatalf("what is given back keeps its conditions: %s (%v)", patch, err)
	}
	ds = written(t, ds, patch)
	if len(ds.Status.Conditions) != 1 || ds.Status.Conditions[0].Type != "example.com/Mine" {
		t.Errorf("what is given back has %+v", ds.Status.Conditions)
	}
}

// TestWhatHinders: that nobody is asked is said as long as there is something to do.
func TestWhatHinders(t *testing.T) {
	for phase, want := range map[v1alpha1.Phase]string{
		v1alpha1.PhaseProgressing: "True NotAsked nobody is asked", v1alpha1.PhaseRolledBack: "False NotAsked nobody is asked",
		v1alpha1.PhaseComplete: "False Complete revision b is on every node that can have it",
	} {
		c := find(Of(set(true, 12), rollout(phase, 2), "nobody is asked"), v1alpha1.RolloutReconciling)
		if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); got != want {
			t.Errorf("%s: it is %s", phase, got)
		}
	}
}
