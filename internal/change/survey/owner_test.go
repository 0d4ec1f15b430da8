package survey_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// A DaemonSet of another API group, such as one of OpenKruise, has pods of its own.
func TestPodsOfAnotherGroupsDaemonSetAreNoDaemons(t *testing.T) {
	for group, want := range map[string]standing.Verdict{
		"apps/v1": standing.Current, "apps/v1beta2": standing.Current, "extensions/v1beta1": standing.Current, "apps.kruise.io/v1alpha1": standing.Waiting,
	} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4")
		w.Node("n1")
		w.Pod(ds, "n1", revisions[0], func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = group })
		v, err := survey.New(w.Objects).View(ds)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Verdict("n1"); got != want {
			t.Errorf("a pod of a DaemonSet of %s makes its node %s, want %s", group, got, want)
		}
	}
}
