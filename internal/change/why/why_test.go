package why

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// golden compares with a file of testdata. One word may be wide.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	surveytest.Golden(t, name, got, func(line string) bool { return !strings.Contains(strings.TrimSpace(line), " ") })
}

const careful = `
waves:
- {name: canary, nodes: {matchLabels: {canary: "yes"}}, soak: 10m, approval: Manual}
domains:
- {key: rack, maxUnavailable: 1}
failure: {min: 3}
`

func TestNodes(t *testing.T) {
	w, _, revisions := surveytest.Fleet(t)
	gpu, _ := w.DaemonSet("gpu", "example.com/gpu:1")
	gpu.Spec.Template.Spec.NodeSelector = map[string]string{"gpu": "yes", "kubernetes.io/hostname": "node-x"}
	gpu.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "arch", Operator: corev1.NodeSelectorOpIn,
				Values: []string{"arm64", "amd64"}}}},
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "old",
				Operator: corev1.NodeSelectorOpDoesNotExist}, {Key: "zone", Operator: corev1.NodeSelectorOpExists}}},
		},
	}}}
	var out bytes.Buffer
	write := func(s *survey.Survey, name string) {
		t.Helper()
		r, err := Node(s, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.DaemonSets {
			p := &r.DaemonSets[i]
			if events, log := p.AsksForMore(); events && log {
				p.AddEvents([]corev1.Event{
					{Type: "Warning", Reason: "BackOff", Message: "Back-off restarting failed container", Count: 9,
						LastTimestamp: surveytest.Ago(time.Minute)},
					{Type: "Normal", Reason: "Pulled", Message: "Container image already present on machine",
						LastTimestamp: surveytest.Ago(2 * time.Minute)},
				})
				p.Log, p.Missing = []string{"starting", "cannot read /etc/agent.conf"}, []string{"something cannot be read"}
			}
		}
		out.WriteString("# everynode why " + name + "\n")
		r.Write(&out, Style{Now: surveytest.Now})
		out.WriteString("\n")
	}
	s := survey.New(w.Objects)
	for _, n := range s.Nodes[:6] {
		write(s, n.Name)
	}
	golden(t, "nodes.txt", out.Bytes())

	out.Reset()
	w.Policy("careful", careful)
	w.Rollout(w.Objects.DaemonSets[0], v1alpha1.DaemonSetRolloutStatus{StableRevision: revisions[0],
		TargetRevision: revisions[1], Step: "rest", Phase: v1alpha1.PhaseProgressing, Message: "step rest"})
	s = survey.New(w.Objects)
	for _, n := range s.Nodes[:6] {
		write(s, n.Name)
	}
	golden(t, "nodes-policy.txt", out.Bytes())
}

func TestDaemonSets(t *testing.T) {
	w, ds, revisions := surveytest.Fleet(t)
	var out bytes.Buffer
	set := func(verdict standing.Verdict, style Style) *SetReport {
		t.Helper()
		r, err := Set(survey.New(w.Objects), ds, verdict)
		if err != nil {
			t.Fatal(err)
		}
		r.Write(&out, style)
		out.WriteString("\n")
		return r
	}
	set("", Style{Now: surveytest.Now})
	set(standing.Waiting, Style{Now: surveytest.Now})
	set(standing.NodeFault, Style{Now: surveytest.Now, Colours: true})
	w.Policy("careful", careful)
	set("", Style{Now: surveytest.Now})
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{
		StableRevision: revisions[0], TargetRevision: revisions[1], Step: "rest", Phase: v1alpha1.PhaseRolledBack,
		Message: "revision " + revisions[1] + " failed on 3 of 3 nodes: node-crash: container agent ended with exit code 2",
		FailedRevisions: []v1alpha1.FailedRevision{{Revision: revisions[1], Why: "failed on 3 of 3 nodes",
			Action: v1alpha1.FailureRollback, Time: surveytest.Ago(time.Minute)}},
	})
	r := set("", Style{Now: surveytest.Now})
	golden(t, "daemonset.txt", out.Bytes())
	encoded, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "daemonset.json", append(encoded, '\n'))
}

// Nodes that lose the daemon by the next template, and those that get it, say what they wait for.
func TestNodesThatAreLeftOutInTurn(t *testing.T) {
	w := surveytest.New(t)
	ds, revisions := w.DaemonSet("log-agent", "example.com/agent:1.4")
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		disk := "hdd"
		if name > "n2" {
			disk = "ssd"
		}
		w.Node(name, surveytest.Label("disk", disk),
			surveytest.Label("canary", map[bool]string{true: "yes", false: "no"}[name == "n1" || name == "n4"]))
	}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "hdd"}
	revisions = append(revisions, w.Revise(ds))
	for _, name := range []string{"n2"} { // n1 has lost its pod already
		w.Pod(ds, name, revisions[1])
	}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	revisions = append(revisions, w.Revise(ds))
	w.Policy("careful", "waves: [{name: canary, nodes: {matchLabels: {canary: \"yes\"}}, approval: Manual}]")
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{StableRevision: revisions[1], TargetRevision: revisions[2],
		Step: "canary", Phase: v1alpha1.PhaseProgressing, Message: "step canary"})
	var out bytes.Buffer
	for _, n := range w.Objects.Nodes {
		r, err := Node(survey.New(w.Objects), n.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Write(&out, Style{Now: surveytest.Now})
		out.WriteString("\n")
	}
	golden(t, "nodes-placement.txt", out.Bytes())
}

func TestEachNodeHasOneVerdict(t *testing.T) {
	w, ds, _ := surveytest.Fleet(t)
	r, err := Set(survey.New(w.Objects), ds, "")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, g := range r.Groups {
		sum += g.Count
	}
	if sum != len(w.Objects.Nodes) || r.Nodes != sum {
		t.Errorf("%d verdicts for %d nodes", sum, len(w.Objects.Nodes))
	}
}

// What hinders content and images before their turn is told below the phase.
func TestReportTellsWhatHindersAChange(t *testing.T) {
	r := &SetReport{Namespace: "default", DaemonSet: "logs", Phase: "Progressing", Message: "images are awaited",
		Fetch:   &v1alpha1.FetchStatus{Message: "the image of Everynode does not start there"},
		Content: &v1alpha1.ContentStatus{Overtaken: v1alpha1.OvertakenOften, OvertakenSince: &metav1.Time{Time: time.Unix(0, 0)}}}
	var out strings.Builder
	r.Write(&out, Style{})
	for _, want := range []string{"images are awaited", "the image of Everynode does not start there", "faster than it can travel"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not told:\n%s", want, &out)
		}
	}
}

func TestUnknownNode(t *testing.T) {
	w, _, _ := surveytest.Fleet(t)
	if _, err := Node(survey.New(w.Objects), "node-x", nil); err == nil || err.Error() != `there is no node "node-x"` {
		t.Errorf("of an unknown node it says %v", err)
	}
}

func TestAge(t *testing.T) {
	for want, d := range map[string]time.Duration{"0 s": -time.Minute, "119 s": 119 * time.Second,
		"119 min": 119*time.Minute + 59*time.Second, "47 h": 47 * time.Hour, "2 days": 71 * time.Hour} {
		if got := Age(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}

// What a container wrote is shown, and does nothing in the terminal of who looks.
func TestLogsDoNothingInATerminal(t *testing.T) {
	p := Place{
		Namespace: "default", DaemonSet: "agent", Node: "n1", Verdict: "FailedRevision", Container: "main",
		Log:    []string{"ok\x1b[1A\x1b[2KReady", "\x1b]0;owned\x07", "\u009b31mred \xff"},
		Events: []string{"Warning \u202edesrever"}, Missing: []string{"\rgone"},
	}
	var out bytes.Buffer
	(&NodeReport{Node: "n1", DaemonSets: []Place{p}}).Write(&out, Style{})
	if strings.ContainsAny(out.String(), "\x1b\r\x07\u009b\u202e") || !utf8.ValidString(out.String()) {
		t.Errorf("it writes %q", out.String())
	}
	if !strings.Contains(out.String(), `ok\x1b[1A\x1b[2KReady`) {
		t.Errorf("what was written cannot be seen:\n%s", out.String())
	}
}

// TestContentThatCannotBeFollowed: nodes wait for what hinders the content, not for their turn.
func TestContentThatCannotBeFollowed(t *testing.T) {
	w, ds, revisions := surveytest.Fleet(t)
	w.Policy("careful", "waves: [{name: canary, count: 1}]\ncontent: {}")
	const why = "the template names 21 ConfigMaps and Secrets; at most 20 can be content"
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{StableRevision: revisions[0], TargetRevision: revisions[1],
		Step: "canary", Phase: v1alpha1.PhasePaused, Message: why, Content: &v1alpha1.ContentStatus{Message: why}})
	r, err := Node(survey.New(w.Objects), "node-wait", ds)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.DaemonSets[0]; p.Verdict != string(standing.Waiting) || p.Reasons[0] != why {
		t.Errorf("it is %s: %q, want that it waits: %s", p.Verdict, p.Reasons, why)
	}
}
