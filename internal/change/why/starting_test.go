package why

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// A node that starts says which group it is at and for whom it waits, and a daemon of a later group that it has its turn
// still to come.
func TestNodeThatStarts(t *testing.T) {
	w := surveytest.New(t)
	cni, _ := w.DaemonSet("cni", "example.com/cni:1")
	logs, _ := w.DaemonSet("logs", "example.com/logs:1")
	group := func(name string) v1alpha1.StartupGroup {
		return v1alpha1.StartupGroup{Timeout: "5m", DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: cni.Namespace, Name: name}}}
	}
	startup := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	startup.Spec.Groups = []v1alpha1.StartupGroup{group("cni"), group("logs"), group("nobody")}
	w.Node("new")
	node := w.Objects.Nodes[0]
	for _, c := range []struct {
		startups []*v1alpha1.NodeStartup
		group    int
		since    time.Duration
		want     string
	}{
		{[]*v1alpha1.NodeStartup{startup}, 1, time.Minute, "Node new starts group 1 of 3 of NodeStartup all; it waits for " + cni.Namespace + "/cni"},
		{[]*v1alpha1.NodeStartup{startup}, 1, time.Hour, "it waits for longer than the timeout for"},
		{[]*v1alpha1.NodeStartup{startup}, 3, time.Minute, "/nobody, which does not exist"},
		{nil, 1, time.Minute, "group 1 of NodeStartup all, which is gone or cannot be read here"},
	} {
		w.Objects.Startups = c.startups
		gate := nodestartup.Gate(nodestartup.Place{Startup: "all", Group: c.group}, v1alpha1.GateJoin, surveytest.Now.Add(-c.since))
		node.Spec.Taints = []corev1.Taint{*gate}
		r, err := Node(survey.New(w.Objects), "new", nil)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r.Write(&out, Style{Now: surveytest.Now})
		if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, c.want) {
			t.Errorf("it says\n%s\nwant %q", text, c.want)
		}
		for _, p := range r.DaemonSets {
			waits := slices.ContainsFunc(p.Reasons, func(reason string) bool {
				return strings.HasPrefix(reason, "waits for its turn: the node starts group 1 of 3") &&
					strings.HasSuffix(reason, "for "+cni.Namespace+"/cni")
			})
			if want := c.startups != nil && c.group == 1 && p.DaemonSet == logs.Name; waits != want {
				t.Errorf("at group %d %s says %q", c.group, p.DaemonSet, p.Reasons)
			}
		}
	}
	node.Spec.Taints = nil
	if r, err := Node(survey.New(w.Objects), "new", nil); err != nil || r.Starting != "" {
		t.Errorf("once it is open it says %q, %v", r.Starting, err)
	}
}

// Where another controller makes the pods no daemon has its turn, and a node that stayed open says why.
func TestNodeBesideAnotherController(t *testing.T) {
	w := surveytest.New(t)
	cni, _ := w.DaemonSet("cni", "example.com/cni:1")
	logs, _ := w.DaemonSet("logs", "example.com/logs:1")
	logs.Spec.Template.Spec.Tolerations = []corev1.Toleration{nodestartup.Toleration()}
	startup := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	for _, name := range []string{"cni", "logs"} {
		startup.Spec.Groups = append(startup.Spec.Groups, v1alpha1.StartupGroup{
			DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: cni.Namespace, Name: name}}})
	}
	startup.Status.Conditions = []metav1.Condition{{Type: "Ordered", Status: metav1.ConditionFalse}}
	w.Objects.Startups = []*v1alpha1.NodeStartup{startup}
	w.Node("new")
	node := w.Objects.Nodes[0]
	node.Annotations = map[string]string{nodestartup.NotClosedAnnotation: "nobody answered"}
	node.Spec.Taints = []corev1.Taint{*nodestartup.Gate(nodestartup.Place{Startup: "all", Group: 1}, v1alpha1.GateJoin,
		surveytest.Now)}
	r, err := Node(survey.New(w.Objects), "new", nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r.Write(&out, Style{Now: surveytest.Now})
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "Node new stayed open: nobody answered") ||
		strings.Contains(text, "its turn") || !strings.Contains(text, "taint "+nodestartup.TaintKey) {
		t.Errorf("it says\n%s", text)
	}
}

// A node waits for the daemon of the revision that it is to have, also while the newest template says otherwise.
func TestNodeThatStartsDuringAChange(t *testing.T) {
	for newest, want := range map[string]string{
		"typo": "it waits for kube-system/cni",
		"":     "it waits for nothing",
	} {
		w := surveytest.New(t)
		cni, revisions := w.DaemonSet("cni", "example.com/cni:1")
		if newest == "" { // the stable revision is what leaves the node out
			cni.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			revisions = []string{w.Revise(cni)}
		}
		old := cni.DeepCopy()
		cni.Spec.Template.Spec.NodeSelector = nil
		if newest != "" {
			cni.Spec.Template.Spec.NodeSelector = map[string]string{"disk": newest}
		}
		cni.Spec.Template.Spec.Containers[0].Image = "example.com/cni:2"
		target := w.Revise(cni)
		ssd := surveytest.Label("disk", "ssd")
		w.Node("a", ssd)
		w.Node("b", ssd)
		w.Node("new")
		for _, node := range []string{"a", "b"} {
			w.Pod(old, node, revisions[0])
		}
		w.Policy("careful", "waves: [{name: canary, count: 1, approval: Manual}]")
		w.Rollout(cni, v1alpha1.DaemonSetRolloutStatus{DaemonSetGeneration: cni.Generation, StableRevision: revisions[0],
			TargetRevision: target, Step: "canary", Phase: v1alpha1.PhaseHalted})
		startup := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
		startup.Spec.Groups = []v1alpha1.StartupGroup{{
			DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: cni.Namespace, Name: cni.Name}}}}
		w.Objects.Startups = []*v1alpha1.NodeStartup{startup}
		w.Objects.Nodes[2].Spec.Taints = []corev1.Taint{*nodestartup.Gate(nodestartup.Place{Startup: "all", Group: 1},
			v1alpha1.GateJoin, surveytest.Now)}
		r, err := Node(survey.New(w.Objects), "new", nil)
		if err != nil || !strings.Contains(r.Starting, want) {
			t.Errorf("with the selector %q in the newest template it says %q, %v, want %q", newest, r.Starting, err, want)
		}
	}
}
