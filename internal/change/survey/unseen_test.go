package survey_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// takeOver stores the DaemonSet as it is beside another controller, where one of ours has seen a generation of it, and
// says a reason in its condition.
func takeOver(w *surveytest.World, seen int64, reason string) {
	ds := w.Objects.DaemonSets[0]
	ds.Generation, ds.Status.ObservedGeneration = 2, 2
	ds.Annotations = map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}
	ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
	ds.Status.Conditions = []appsv1.DaemonSetCondition{{
		Type: v1alpha1.RolloutReconciling, Reason: reason, Message: "the webhook is not asked",
	}}
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{DaemonSetGeneration: seen})
}

// TestWhatNoControllerHasSeen says so, and nothing where one has.
func TestWhatNoControllerHasSeen(t *testing.T) {
	const noController, noPolicies = "last change of the DaemonSet", "policy careful"
	for name, c := range map[string]struct {
		change func(w *surveytest.World)
		says   []string
	}{
		"all is seen":           {func(*surveytest.World) {}, nil},
		"a change is not seen":  {func(w *surveytest.World) { w.Objects.DaemonSets[0].Generation++ }, []string{noController}},
		"nobody knows policies": {func(w *surveytest.World) { w.Objects.Policies[0].Status.ObservedGeneration = 0 }, []string{noPolicies}},
		"no controller at all": {func(w *surveytest.World) {
			w.Objects.DaemonSets[0].Generation++
			w.Objects.Policies[0].Status.ObservedGeneration = 0
		}, []string{noController, noPolicies}},
		"the policy is not stored":   {func(w *surveytest.World) { p := w.Objects.Policies[0]; p.UID, p.Status.ObservedGeneration = "", 0 }, nil},
		"the policy was seen before": {func(w *surveytest.World) { w.Objects.Policies[0].Generation++ }, nil},
		"taken over":                 {func(w *surveytest.World) { takeOver(w, 2, "") }, nil},
		"taken over, and the last change not seen": {func(w *surveytest.World) { takeOver(w, 0, "") },
			[]string{"no controller of Everynode"}},
		"taken over, and nobody is asked": {func(w *surveytest.World) { takeOver(w, 2, admit.NotAsked) },
			[]string{"no pod is deleted: the webhook"}},
		"taken over, and the policy has gone": {func(w *surveytest.World) {
			takeOver(w, 2, "")
			w.Objects.Policies = nil
		}, []string{"no policy selects it any more"}},
		"another one is taken over": {func(w *surveytest.World) {
			other := w.Objects.DaemonSets[0].DeepCopy()
			other.Name, other.UID, other.Annotations = "other", "other", map[string]string{admit.UpdateStrategy: "{}"}
			w.Objects.DaemonSets = append(w.Objects.DaemonSets, other)
		}, []string{"policy careful selects it, and it is not taken over"}},
		"its rollout has begun": {func(w *surveytest.World) {
			w.Objects.Policies[0].Status.ObservedGeneration = 0
			w.Rollout(w.Objects.DaemonSets[0], v1alpha1.DaemonSetRolloutStatus{})
		}, nil},
	} {
		w := surveytest.New(t)
		ds, _ := w.DaemonSet("log-agent", "example.com/agent:1")
		w.Policy("careful", "{}")
		c.change(w)
		got := survey.New(w.Objects).Unseen(ds)
		if len(got) != len(c.says) {
			t.Errorf("%s: it says %q, want %d sentences", name, got, len(c.says))
			continue
		}
		for i, want := range c.says {
			if !strings.Contains(got[i], want) {
				t.Errorf("%s: it says %q, want %q", name, got[i], want)
			}
		}
	}
}
