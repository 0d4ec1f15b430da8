package why

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// A halted rollout whose policy was deleted holds the change: no node is said to wait for its turn.
func TestHaltedWithoutAPolicyHolds(t *testing.T) {
	w := surveytest.New(t)
	ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4", "example.com/agent:1.5")
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		w.Node(n)
		w.Pod(ds, n, revisions[0])
	}
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{
		StableRevision: revisions[0], TargetRevision: revisions[1], Step: "canary", Phase: v1alpha1.PhaseHalted,
		Message:         "revision " + revisions[1] + " failed on 3 of 3 nodes",
		FailedRevisions: []v1alpha1.FailedRevision{{Revision: revisions[1], Why: "failed on 3 of 3 nodes", Action: v1alpha1.FailureHalt, Time: surveytest.Ago(time.Minute)}},
	})
	var out bytes.Buffer
	r, err := Set(survey.New(w.Objects), ds, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Write(&out, Style{Now: surveytest.Now})
	n, err := Node(survey.New(w.Objects), "n1", ds)
	if err != nil {
		t.Fatal(err)
	}
	n.Write(&out, Style{Now: surveytest.Now})
	if got := out.String(); strings.Contains(got, "its turn") || !strings.Contains(got, "failed on 3 of 3 nodes") {
		t.Error(got)
	}
}

// What is left of another DaemonSet of the name holds nothing.
func TestLeftoverOfAnotherDaemonSetHoldsNothing(t *testing.T) {
	w := surveytest.New(t)
	ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4", "example.com/agent:1.5")
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		w.Node(n)
		w.Pod(ds, n, revisions[0])
	}
	w.Objects.Rollouts = []*v1alpha1.DaemonSetRollout{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "log-agent", Labels: map[string]string{"everynode.io/daemonset-uid": "another"}},
		Status: v1alpha1.DaemonSetRolloutStatus{
			StableRevision: revisions[0], TargetRevision: revisions[1], Step: "canary", Phase: v1alpha1.PhasePaused, Message: "somebody paused it (spec.paused)",
			Conditions: []metav1.Condition{{Type: "DaemonSetGone", Status: metav1.ConditionTrue, LastTransitionTime: surveytest.Ago(time.Hour)}},
		},
	}}
	var out bytes.Buffer
	r, err := Set(survey.New(w.Objects), ds, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Write(&out, Style{Now: surveytest.Now})
	n, err := Node(survey.New(w.Objects), "n1", ds)
	if err != nil {
		t.Fatal(err)
	}
	n.Write(&out, Style{Now: surveytest.Now})
	if got := out.String(); !strings.Contains(got, "its turn: rollout has not come to this node") || strings.Contains(got, "aused") {
		t.Error(got)
	}
}
