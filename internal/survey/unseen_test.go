package survey_test

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/survey"
	"github.com/everynode/everynode/internal/survey/surveytest"
)

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
