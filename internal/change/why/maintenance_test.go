package why

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// under adds a condition to a node, true for two hours.
func under(t corev1.NodeConditionType) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue,
			Reason: "Kernel", Message: "a new one", LastTransitionTime: surveytest.Ago(2 * time.Hour)})
	}
}

// With a policy a node that somebody works on waits for the end of that; without one a change goes to it all the same.
// What else is wrong with it is said too. That maintenance is planned is said, and no more.
func TestNodesInMaintenance(t *testing.T) {
	const says = " since 2026-03-01 10:00 UTC, says Kernel: a new one"
	for _, follows := range []bool{true, false} {
		w := surveytest.New(t)
		ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4", "example.com/agent:1.5")
		w.Node("drained", surveytest.Silent, under(corev1.NodeDrained), under(corev1.NodeMaintenanceInProgress))
		w.Node("answers", under(corev1.NodeDrainInProgress))
		w.Pod(ds, "answers", revisions[0])
		w.Node("planned", under(corev1.NodeMaintenancePlanned))
		w.Pod(ds, "drained", revisions[0])
		w.Pod(ds, "planned", revisions[0])
		if follows {
			w.Policy("careful", "{}")
			w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{StableRevision: revisions[0], TargetRevision: revisions[1],
				Step: "rest", Phase: v1alpha1.PhaseProgressing, Message: "step rest"})
		}
		s := survey.New(w.Objects)
		report := func(name string) (*NodeReport, string) {
			r, err := Node(s, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			r.Write(&out, Style{Now: surveytest.Now})
			return r, strings.Join(strings.Fields(out.String()), " ")
		}
		r, text := report("drained")
		verdict := map[bool]string{true: "InMaintenance", false: "NodeFault"}[follows]
		p := r.DaemonSets[0]
		if p.Verdict != verdict {
			t.Errorf("policy %v: it is %s, want %s", follows, p.Verdict, verdict)
		}
		if follows && (p.Since == nil || !p.Since.Equal(surveytest.Now.Add(-2*time.Hour)) ||
			p.Reasons[0] != "in maintenance: MaintenanceInProgress"+says) {
			t.Errorf("since %v, because of %q", p.Since, p.Reasons)
		}
		for _, want := range []string{"the node does not answer", "Node drained is out of order: the node does not answer",
			"Node drained: in maintenance: MaintenanceInProgress" + says, "Node drained: in maintenance: Drained" + says} {
			if !strings.Contains(text, want) {
				t.Errorf("policy %v: it does not say %q: %s", follows, want, text)
			}
		}
		verdict = map[bool]string{true: "InMaintenance", false: "Waiting"}[follows]
		if r, _ = report("answers"); r.DaemonSets[0].Verdict != verdict {
			t.Errorf("policy %v: one that answers is %s, want %s", follows, r.DaemonSets[0].Verdict, verdict)
		}
		r, text = report("planned")
		if p := r.DaemonSets[0]; p.Verdict != "Waiting" {
			t.Errorf("policy %v: where it is planned it is %s", follows, p.Verdict)
		}
		if !strings.Contains(text, "Node planned: maintenance is planned: MaintenancePlanned"+says) {
			t.Errorf("policy %v: %s", follows, text)
		}
		set, err := Set(s, ds, "")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		set.Write(&out, Style{Now: surveytest.Now})
		if got := strings.Contains(out.String(), "2 InMaintenance: somebody works on the node"); got != follows {
			t.Errorf("policy %v: %s", follows, out.String())
		}
	}
}
