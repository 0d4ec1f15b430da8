package why

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Of a node whose machine has started again it names the pods that do not start yet, for whom they wait, and until when;
// of a daemon among them the same.
func TestPodsThatMayNotStartYet(t *testing.T) {
	w := surveytest.New(t)
	w.Node("n1")
	w.Node("n2")
	logs, hashes := w.DaemonSet("logs", "example.com/logs:1")
	const waits = "waiting until group 1 of its daemons is ready, which lacks kube-system/cni-x; until 12:02:00 UTC at most"
	held := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse},
			{Type: nodestartup.WaitsCondition, Status: corev1.ConditionTrue, Message: waits}}
	}
	w.Pod(logs, "n1", hashes[0], held)
	w.Pod(logs, "n2", hashes[0])
	w.Other("n1")
	held(w.Objects.Pods[2])
	for node, want := range map[string]string{
		"n1": "2 pods of node n1 may not start yet: default/exporter-n1, " + logs.Namespace + "/logs-n1. " + waits,
		"n2": "",
	} {
		r, err := Node(survey.New(w.Objects), node, nil)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r.Write(&out, Style{Now: surveytest.Now})
		text := strings.Join(strings.Fields(out.String()), " ")
		if want == "" && strings.Contains(text, "may not start") || !strings.Contains(text, want) {
			t.Errorf("of %s it says\n%s\nwant %q", node, text, want)
		}
		if says := slices.Contains(r.DaemonSets[0].Reasons, waits); says != (want != "") {
			t.Errorf("of the daemon on %s it says %q", node, r.DaemonSets[0].Reasons)
		}
	}
}
