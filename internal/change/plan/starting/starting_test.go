package starting_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/plan/starting"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// startup lists one DaemonSet in each group.
func startup(name string, sets ...string) *v1alpha1.NodeStartup {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, set := range sets {
		s.Spec.Groups = append(s.Spec.Groups, v1alpha1.StartupGroup{
			DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "kube-system", Name: set}}})
	}
	nodestartup.SetDefaults(&s.Spec)
	return s
}

// fleet has cni on three nodes, available, and logs on two of them, where one crashes.
func fleet(t *testing.T) (w *surveytest.World, cni, logs *appsv1.DaemonSet) {
	w = surveytest.New(t)
	w.Node("n1", surveytest.Label("disk", "ssd"))
	w.Node("n2", surveytest.Label("disk", "ssd"))
	w.Node("n3")
	cni, of := w.DaemonSet("cni", "cni:1")
	for _, name := range []string{"n1", "n2", "n3"} {
		w.Pod(cni, name, of[0])
	}
	logs, of = w.DaemonSet("logs", "logs:1")
	logs.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	w.Pod(logs, "n1", of[0])
	w.Pod(logs, "n2", of[0], surveytest.Crashing)
	return w, cni, logs
}

// plan plans with the NodeStartups that are there then.
func plan(w *surveytest.World, old, is *v1alpha1.NodeStartup, others ...*v1alpha1.NodeStartup) (*starting.Forecast,
	string) {
	w.Objects.Startups = append(slices.Clone(others), is)
	f := starting.Make(survey.New(w.Objects), old, is, nil)
	var out bytes.Buffer
	f.Write(&out)
	return f, strings.Join(strings.Fields(out.String()), " ")
}

func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

// It says which nodes would follow, where each DaemonSet is to run and is available, and which pods would wait.
func TestWhomANodeStartupConcerns(t *testing.T) {
	w, cni, _ := fleet(t)
	w.Other("n1")
	w.Other("n2")
	w.Objects.Pods[5].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	w.Other("n1")
	w.Objects.Pods[7].Status.Phase = corev1.PodSucceeded // nobody waits with it
	first := startup("a", "cni", "else")
	first.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "n3"}}
	w.Objects.Nodes[2].Labels["kubernetes.io/hostname"] = "n3"
	f, text := plan(w, nil, startup("b", cni.Name, "logs"), first, startup("c", "else"))
	if strings.Contains(text, "kube-system/else") {
		t.Errorf("it speaks of what others list:\n%s", text)
	}
	if !f.Changes() || f.Nodes != (starting.Nodes{Total: 3, Chosen: 3, Follow: 2}) ||
		f.Pods != (starting.Pods{Ordinary: 2, Tolerant: 1, Unmarked: 4}) {
		t.Errorf("it concerns %+v, %+v", f.Nodes, f.Pods)
	}
	want(t, text, "NodeStartup b is new", "3 nodes: 2 would follow it when they join, or when their machine starts again",
		"none is closed now", "2 pods on them would wait for the groups",
		"1 kube-system/cni 2 2 as long as it takes", "2 kube-system/logs 2 1",
		"kube-system/logs is available on 1 of 2 nodes that it is to run on; n2: ",
		"1 of the chosen nodes follow a NodeStartup whose name sorts first",
		"1 ordinary pod there would be placed on closed nodes too", "4 listed daemons there carry no group")
	if len(f.Never) > 0 {
		t.Errorf("would never open: %q", f.Never)
	}
}

// It says what a node would wait for in vain; with then: Open that costs the timeout only.
func TestWhatWouldNeverOpen(t *testing.T) {
	w, _, logs := fleet(t)
	w.Objects.Pods = slices.DeleteFunc(w.Objects.Pods, func(p *corev1.Pod) bool { return p.Name == "logs-n1" })
	is := startup("all", "cni", "nobody", "logs")
	f, text := plan(w, nil, is)
	if len(f.Never) != 2 {
		t.Errorf("would never open: %q", f.Never)
	}
	want(t, text, "Never opens: nodes stay closed at group 2 for kube-system/nobody: there is no such DaemonSet.",
		"Never opens: nodes stay closed at group 3 for kube-system/logs: it is available on none of the 2 nodes that it "+
			"is to run on, such as n")
	for i := range is.Spec.Groups {
		is.Spec.Groups[i].Timeout, is.Spec.Groups[i].Then = "5m", v1alpha1.ThenOpen
	}
	f, text = plan(w, nil, is)
	if len(f.Never) != 0 {
		t.Errorf("with Open it would never open: %q", f.Never)
	}
	want(t, text, "group 2 goes on without kube-system/nobody after its timeout of 5m on every node: there is no such",
		"5m, then goes on", "the timeout of group 1 counts for the taint only")

	// One that comes by the same file is there, and has no pod yet: it will.
	coming := logs.DeepCopy()
	coming.Name, coming.UID = "nobody", ""
	f = starting.Make(survey.New(w.Objects), nil, startup("all", "cni", "nobody"), []*appsv1.DaemonSet{coming})
	if len(f.Never) != 0 || f.Groups[1].DaemonSets[0].Missing {
		t.Errorf("a DaemonSet of the file is waited for in vain: %q", f.Never)
	}
	coming.Spec.MinReadySeconds = 300
	f = starting.Make(survey.New(w.Objects), nil, is, []*appsv1.DaemonSet{coming})
	if !slices.ContainsFunc(f.Warnings, func(s string) bool {
		return strings.Contains(s, "it is available 5m0s after it is ready at the earliest (minReadySeconds)")
	}) {
		t.Errorf("of a daemon that is never available within the timeout it says %q", f.Warnings)
	}
	cni := w.Objects.DaemonSets[0]
	w.Objects.Pods = slices.DeleteFunc(w.Objects.Pods, func(p *corev1.Pod) bool { return p.Name != "cni-n3" })
	f, _ = plan(w, nil, startup("all", "cni"))
	if d := f.Groups[0].DaemonSets[0]; d.Available != 1 || d.Lacks != "n1" || d.Why != "it has no pod there" {
		t.Errorf("without its pods it says %+v", d)
	}
	cni.DeletionTimestamp = &metav1.Time{Time: surveytest.Now}
	if f, _ = plan(w, nil, startup("all", "cni")); !f.Groups[0].DaemonSets[0].Missing {
		t.Error("a DaemonSet that is being deleted is waited for in vain, and it does not say so")
	}
	cni.DeletionTimestamp = nil
	none := startup("none", "cni")
	none.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "node"}}
	_, text = plan(w, nil, none)
	want(t, text, "it chooses none of the 3 nodes")
	logs.Spec.Template.Spec.NodeSelector = map[string]string{"no": "node"}
	_, text = plan(w, nil, startup("all", "logs"))
	want(t, text, "group 1 is to run on none of the nodes that follow it")
}

// It says what becomes of nodes that start now, as the controller will decide; a daemon without room is waited for.
func TestNodesThatStartNow(t *testing.T) {
	w, cni, _ := fleet(t)
	w.Node("n4")
	old := startup("all", "cni", "nobody")
	for i, group := range []int{1, 2, 2, 1} {
		gate := nodestartup.Gate(nodestartup.Place{Startup: "all", Group: group}, v1alpha1.GateJoin,
			surveytest.Now.Add(-time.Minute))
		w.Objects.Nodes[i].Spec.Taints = []corev1.Taint{*gate}
	}
	f, text := plan(w, old, startup("all", "cni", "logs"))
	if !f.Changed || f.New || len(f.Starting) != 4 {
		t.Errorf("changed: %t, new: %t; starting are %+v", f.Changed, f.New, f.Starting)
	}
	want(t, text, "NodeStartup all changes", "n1 is at group 1, and would open at once",
		"n2 is at group 2, and waits for kube-system/logs", "n3 is at group 2, and would open at once",
		"and 1 more that start now")
	f, _ = plan(w, old, startup("all", "cni", "nobody"))
	if got := f.Starting[0]; f.Changed || !f.Changes() || got.To != 2 ||
		got.Waits != "kube-system/nobody, which does not exist" {
		t.Errorf("changed: %t; the first node is to %+v", f.Changed, got)
	}
	if f, _ = plan(w, nil, startup("other", "cni"), old); len(f.Starting) != 0 {
		t.Errorf("nodes start under another one, and it says %+v", f.Starting)
	}
	// A pod of somebody else has the room.
	cni.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 9100, ContainerPort: 9100}}
	w.Other("n4")
	f, _ = plan(w, old, old)
	if why := f.Groups[0].DaemonSets[0].Why; f.Groups[0].DaemonSets[0].Lacks != "n4" || !strings.Contains(why, "9100") ||
		strings.Contains(why, "taint") {
		t.Errorf("the daemon lacks on %s: %s", f.Groups[0].DaemonSets[0].Lacks, why)
	}
	for i := range w.Objects.Nodes {
		w.Objects.Nodes[i].Spec.Taints = nil
	}
	if f, text = plan(w, old, old); f.Changes() || !strings.Contains(text, "NodeStartup all nothing changes") {
		t.Errorf("of the same it says\n%s", text)
	}
}

// Where another controller makes the pods it says that there is no order, and who keeps nodes from being closed.
func TestBesideAnotherController(t *testing.T) {
	w, cni, _ := fleet(t)
	is := startup("all", "cni", "logs")
	is.Status.Conditions = []metav1.Condition{{Type: "Ordered", Status: metav1.ConditionFalse}}
	cni.Spec.Template.Spec.Tolerations = []corev1.Toleration{nodestartup.Toleration()}
	f, text := plan(w, is, is)
	want(t, text, "NodeStartup all closes no node while the template of kube-system/logs does not tolerate the taint",
		"the daemons of all groups start at once")
	if f.Pods != (starting.Pods{}) {
		t.Errorf("no pod waits there after a start of its machine, and it counts %+v", f.Pods)
	}
	// What closes no node keeps none closed, and where the setting is another nothing is to be tolerated.
	missing := startup("all", "cni", "logs", "missing")
	missing.Status = is.Status
	if f, text = plan(w, missing, missing); len(f.Never) > 0 {
		t.Errorf("where no node is closed it says\n%s", text)
	}
	is.Spec.Gate = v1alpha1.GateNone
	_, text = plan(w, is, is)
	want(t, text, "ordinary pods may take the room of daemons that are to come")
	is.Status.Conditions = []metav1.Condition{{Type: "NodesClosed", Status: metav1.ConditionTrue}}
	f, text = plan(w, is, is)
	want(t, text, "ordinary pods may take the room of daemons that are to come")
	if f.Pods != (starting.Pods{}) || strings.Contains(text, "tolerate") || strings.Contains(text, "at once") {
		t.Errorf("in place of another controller it counts %+v and says\n%s", f.Pods, text)
	}
	is.Status.Conditions, is.Spec.Gate = nil, v1alpha1.GateJoin
	_, text = plan(w, is, is)
	if strings.Contains(text, "tolerate") || strings.Contains(text, "at once") {
		t.Errorf("on our own control plane it says\n%s", text)
	}
}
