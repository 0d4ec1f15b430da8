package plan

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// besideStartup has two groups, of cni and logs, since start.
func besideStartup() *v1alpha1.NodeStartup {
	return &v1alpha1.NodeStartup{
		ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "uid", CreationTimestamp: metav1.NewTime(start)},
		Spec: v1alpha1.NodeStartupSpec{Gate: v1alpha1.GateJoin, Groups: []v1alpha1.StartupGroup{
			{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "n", Name: "cni"}}},
			{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "n", Name: "logs"}}},
		}},
	}
}

func standingOf(all map[string]Standing) func(types.NamespacedName) Standing {
	return func(name types.NamespacedName) Standing { return all[name.Name] }
}

// TestWhatIsDueOnANode: who was asked about is marked, who was not is told of, and who has started again is closed.
func TestWhatIsDueOnANode(t *testing.T) {
	fine := standingOf(map[string]Standing{"cni": Found, "logs": Missing})
	lacks := standingOf(map[string]Standing{"cni": Found, "logs": Barred})
	gate := nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin, start)
	const unheard, again = "no webhook of Everynode answered", "its machine has started again, and NodeStartup s closes no node"
	for name, c := range map[string]struct {
		mark      string // "-" for none
		boot      string
		age       time.Duration // since the NodeStartup
		closed    bool
		standing  func(types.NamespacedName) Standing
		why       string // what the node says of it already
		none      bool   // no NodeStartup chooses it
		wantMark  string
		wantGate  bool
		notClosed string
	}{
		"nobody's":                        {mark: "-", boot: "a", none: true},
		"there before":                    {mark: "-", boot: "a", age: -time.Second, wantMark: "uid/a"},
		"not asked about":                 {mark: "-", boot: "a", wantMark: "uid/a", notClosed: unheard},
		"not asked about, long since":     {mark: "-", boot: "a", age: time.Hour, wantMark: "uid/a", notClosed: unheard},
		"closed by its kubelet":           {mark: "-", boot: "a", age: time.Hour, closed: true, wantMark: "uid/a"},
		"asked about":                     {mark: "", boot: "a", closed: true, wantMark: "uid/a"},
		"asked about, and left open":      {mark: "", boot: "a", why: "logs", wantMark: "uid/a", notClosed: "logs"},
		"another NodeStartup's":           {mark: "other/b", boot: "a", wantMark: "uid/a"},
		"dealt with":                      {mark: "uid/a", boot: "a"},
		"a machine that says nothing yet": {mark: "uid/a", boot: ""},
		"a machine that says it now":      {mark: "uid/", boot: "a", wantMark: "uid/a"},
		"started again":                   {mark: "uid/a", boot: "b", wantMark: "uid/b", wantGate: true},
		"started again while it started":  {mark: "uid/a", boot: "b", closed: true, wantMark: "uid/b", wantGate: true},
		"started again, and barred": {mark: "uid/a", boot: "b", standing: lacks, wantMark: "uid/b",
			notClosed: again},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", CreationTimestamp: metav1.NewTime(start.Add(c.age)),
			Annotations: map[string]string{}}}
		n.Status.NodeInfo.BootID = c.boot
		if c.mark != "-" {
			n.Annotations[nodestartup.MarkAnnotation] = c.mark
		}
		if c.why != "" {
			n.Annotations[nodestartup.NotClosedAnnotation] = c.why
		}
		if c.closed {
			n.Spec.Taints = []corev1.Taint{*gate}
		}
		first := besideStartup()
		if c.none {
			first = nil
		}
		if c.standing == nil {
			c.standing = fine
		}
		got := Look(n, first, c.standing, NextTo, start)
		mark := ""
		if got.Mark != (nodestartup.Mark{}) {
			mark = got.Mark.String()
		}
		if mark != c.wantMark || (got.Gate != nil) != c.wantGate || (got.NotClosed == "") != (c.notClosed == "") ||
			!strings.Contains(got.NotClosed, c.notClosed) {
			t.Errorf("%s: due is %+v, want mark %q, gate %v, %q", name, got, c.wantMark, c.wantGate, c.notClosed)
		}
		if got.Gate != nil && got.Gate.Value != "s_1" {
			t.Errorf("%s: it is closed with %s", name, got.Gate.ToString())
		}
	}
}

// TestWhatIsDueOnANodeInPlace: in place of another controller a node that joins is closed while it takes no pods yet.
// One that takes some stays open, and is told of; one that nobody chose when it joined is none that joins later on.
func TestWhatIsDueOnANodeInPlace(t *testing.T) {
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	fine := standingOf(map[string]Standing{"cni": Found, "logs": Barred}) // ours are given the toleration
	for name, c := range map[string]struct {
		mark, boot string // "-" for no mark
		taints     []corev1.Taint
		none       bool
		age        time.Duration
		want       string // the mark
		closes     bool
		notClosed  string
	}{
		"it joins":                        {mark: "-", taints: []corev1.Taint{{Key: "x"}, notReady}, boot: "a", want: "uid/a", closes: true},
		"it joins, and says nothing yet":  {mark: "-", taints: []corev1.Taint{notReady}, want: "uid/", closes: true},
		"it is ready":                     {mark: "-", boot: "a", want: "uid/a", notClosed: "it was ready before a controller had closed it"},
		"another taint of its":            {mark: "-", boot: "a", taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}, want: "uid/a", notClosed: "it was ready"},
		"there before":                    {mark: "-", boot: "a", taints: []corev1.Taint{notReady}, age: -time.Second, want: "uid/a"},
		"nobody's":                        {mark: "-", boot: "a", none: true, want: "/a"},
		"nobody's, noted":                 {mark: "/a", boot: "a", none: true},
		"nobody's, and chosen by a label": {mark: "/a", boot: "a", taints: []corev1.Taint{notReady}, want: "uid/a"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", CreationTimestamp: metav1.NewTime(start.Add(c.age))}}
		n.Status.NodeInfo.BootID, n.Spec.Taints = c.boot, c.taints
		if c.mark != "-" {
			n.Annotations = map[string]string{nodestartup.MarkAnnotation: c.mark}
		}
		first := besideStartup()
		if c.none {
			first = nil
		}
		got := Look(n, first, fine, InPlace, start)
		mark := ""
		if got.Mark != (nodestartup.Mark{}) {
			mark = got.Mark.String()
		}
		if mark != c.want || (got.Gate != nil) != c.closes || (got.While != nil) != c.closes ||
			(got.NotClosed == "") != (c.notClosed == "") || !strings.Contains(got.NotClosed, c.notClosed) {
			t.Errorf("%s: due is %+v, want mark %q, gate %v, %q", name, got, c.want, c.closes, c.notClosed)
		}
	}
}

// TestABarredNodeOpens: a closed node would wait for ever for a daemon that nobody can make there.
func TestABarredNodeOpens(t *testing.T) {
	s := besideStartup()
	gate := nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 1}, s.Spec.Gate, start)
	facts := func(name types.NamespacedName) Daemon { return Daemon{Barred: name.Name == "logs"} }
	d := Decide(s, gate, facts, start)
	if !d.Changed || d.Gate != nil || len(d.Barred) != 1 || d.Barred[0].Name != "logs" {
		t.Errorf("the decision is %+v", d)
	}
	s.Spec.Gate = v1alpha1.GateNone
	gate.Effect = corev1.TaintEffectPreferNoSchedule
	if d := Decide(s, gate, facts, start); d.Gate == nil || len(d.Barred) > 0 {
		t.Errorf("a node that is not closed gets every daemon, and the decision is %+v", d)
	}
	if lacking := Lacking(s, standingOf(map[string]Standing{"logs": Barred})); len(lacking) > 0 {
		t.Errorf("without a gate %v keep it from closing nodes", lacking)
	}
}

// TestConditionsBeside: they are there beside another controller only, and name what is wrong.
func TestConditionsBeside(t *testing.T) {
	s := besideStartup()
	nodes := []Node{{Name: "a"}, {Name: "b", NotClosed: "nobody answered"}}
	all := map[string]Standing{"cni": Found, "logs": Barred}
	if got := Statuses([]*v1alpha1.NodeStartup{s}, nodes, Home, standingOf(all))["s"].Conditions; len(got) != 3 {
		t.Errorf("on our own control plane the conditions are %v", got)
	}
	check := func(condition string, want metav1.ConditionStatus, says string) {
		t.Helper()
		got := Statuses([]*v1alpha1.NodeStartup{s}, nodes, NextTo, standingOf(all))["s"].Conditions
		c := meta.FindStatusCondition(got, condition)
		if c == nil || c.Status != want || !strings.Contains(c.Message, says) {
			t.Errorf("%s is %+v, want %s and %q", condition, c, want, says)
		}
	}
	check(DaemonSetsTolerate, metav1.ConditionFalse, "the template of n/logs does not tolerate the taint")
	check(NodesClosed, metav1.ConditionFalse, "b: nobody answered")
	check(Ordered, metav1.ConditionFalse, "start at once")
	check(DaemonSetsFound, metav1.ConditionTrue, "")
	all["logs"] = Missing
	check(DaemonSetsTolerate, metav1.ConditionTrue, "")
	check(DaemonSetsFound, metav1.ConditionFalse, "n/logs")
	s.Spec.Groups, nodes = s.Spec.Groups[:1], nodes[:1]
	check(Ordered, metav1.ConditionTrue, "one group")
	check(NodesClosed, metav1.ConditionTrue, "")
	check(RoomKept, metav1.ConditionTrue, "")
	s.Spec.Gate = v1alpha1.GateNone
	check(RoomKept, metav1.ConditionFalse, "the cluster's scheduler knows nothing")
	for in, want := range map[Setting]int{Home: 3, InPlace: 5, NextTo: 7} {
		s.Status.Conditions = Statuses([]*v1alpha1.NodeStartup{s}, nodes, in, standingOf(all))["s"].Conditions
		if got := SettingOf(s); len(s.Status.Conditions) != want || got != in || Beside(s) != (in == NextTo) {
			t.Errorf("in setting %d it has %d conditions, want %d, and is read as %d", in, len(s.Status.Conditions), want, got)
		}
	}
}
