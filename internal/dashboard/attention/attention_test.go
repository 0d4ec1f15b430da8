package attention

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func aNode(name string, ready corev1.ConditionStatus, at time.Time) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(at),
	}}
	return n
}

func objects(phases ...v1alpha1.Phase) survey.Objects {
	o := survey.Objects{Locate: time.LoadLocation}
	for i, phase := range phases {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("ds-%02d", i), UID: "one"}
		o.DaemonSets = append(o.DaemonSets, &appsv1.DaemonSet{ObjectMeta: meta})
		if phase != "" {
			status := v1alpha1.DaemonSetRolloutStatus{Phase: phase, Message: "because of " + meta.Name}
			meta.Labels = map[string]string{rollouts.OwnerLabel: "one"}
			o.Rollouts = append(o.Rollouts, &v1alpha1.DaemonSetRollout{ObjectMeta: meta, Status: status})
		}
	}
	return o
}

func text(items []Item) string {
	var b strings.Builder
	for _, i := range items {
		fmt.Fprintf(&b, "%s|%s|%s|%s|%s\n", i.Tone, i.DaemonSet, i.Title, i.Text, i.Since)
	}
	return b.String()
}

func TestWhatNeedsSomebody(t *testing.T) {
	o := objects(v1alpha1.PhaseWaitingForApproval, v1alpha1.PhaseComplete, v1alpha1.PhaseRolledBack, "",
		v1alpha1.PhaseProgressing, v1alpha1.PhasePaused, v1alpha1.PhaseHalted, v1alpha1.PhaseSoaking, v1alpha1.PhaseOutsideWindow)
	cordoned := aNode("n0", corev1.ConditionTrue, began)
	cordoned.Spec.Unschedulable = true
	o.Nodes = []*corev1.Node{cordoned, aNode("n1", corev1.ConditionTrue, began)}
	for i := 2; i < 7; i++ {
		o.Nodes = append(o.Nodes, aNode(fmt.Sprintf("n%d", i), corev1.ConditionUnknown, began.Add(time.Duration(9-i)*time.Hour)))
	}
	want := `bad|default/ds-02|rolled back|because of ds-02|
bad|default/ds-06|halted|because of ds-06|
bad||5 nodes are out of order|n2: the node does not answer; n3: the node does not answer; n4: the node does not answer; ` +
		`and 2 more|2026-03-01T15:00:00Z
warn|default/ds-00|waits for approval|because of ds-00|
warn|default/ds-05|paused|because of ds-05|
`
	if got := text(Of(survey.New(o))); got != want {
		t.Errorf("what needs somebody is\n%swant\n%s", got, want)
	}
}

// TestWhatIsLeftOver has rollouts that nothing follows any more: of a DaemonSet that had the name before, and of one that
// has left its policy.
func TestWhatIsLeftOver(t *testing.T) {
	o := objects(v1alpha1.PhaseHalted, v1alpha1.PhaseHalted)
	o.Rollouts[0].Labels[rollouts.OwnerLabel] = "before"
	o.Rollouts[1].Status.Conditions = []metav1.Condition{{Type: rollouts.PolicyGone, Status: metav1.ConditionTrue}}
	if got := text(Of(survey.New(o))); got != "" {
		t.Errorf("what is left over needs somebody: %s", got)
	}
}

func TestNothingNeedsAnybody(t *testing.T) {
	o := objects("", v1alpha1.PhaseComplete)
	o.Nodes = []*corev1.Node{aNode("n1", corev1.ConditionTrue, began)}
	if got := Of(survey.New(o)); got == nil || len(got) != 0 {
		t.Errorf("%#v needs somebody", got)
	}
}

// A node that starts needs somebody once it waits for longer than its timeout, or for what does not exist.
func TestNodesThatStayClosed(t *testing.T) {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	s.Spec.Groups = []v1alpha1.StartupGroup{
		{Timeout: "1h", DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "default", Name: "ds-00"}}},
		{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "default", Name: "none"}}}}
	o := objects("")
	o.Now, o.Startups = began.Add(2*time.Hour), []*v1alpha1.NodeStartup{s}
	for i, group := range []int{1, 1, 2} {
		n := aNode(fmt.Sprintf("n%d", i), corev1.ConditionTrue, began)
		gate := nodestartup.Gate(nodestartup.Place{Startup: "all", Group: group}, v1alpha1.GateJoin,
			began.Add(time.Duration(i)*90*time.Minute))
		n.Spec.Taints = []corev1.Taint{*gate}
		o.Nodes = append(o.Nodes, n)
	}
	const want = `bad||2 nodes stay closed|n0: group 1 of 2 of NodeStartup all; it waits for longer than the timeout for ` +
		`default/ds-00; n2: group 2 of 2 of NodeStartup all; it waits for default/ds-00; default/none, which does not ` +
		"exist|2026-03-01T12:00:00Z\n"
	if got := text(Of(survey.New(o))); got != want {
		t.Errorf("what needs somebody is\n%swant\n%s", got, want)
	}
}

// A node in maintenance is as somebody wants it, also where it does not answer; after a day somebody should look whether
// it still is.
func TestNodesInMaintenance(t *testing.T) {
	o := objects("")
	o.Now = began.Add(26 * time.Hour)
	for name, at := range map[string]time.Duration{"n0": 0, "n1": time.Hour, "n2": 2*time.Hour + time.Second} {
		n := aNode(name, corev1.ConditionUnknown, began)
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDrained,
			Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(began.Add(at))})
		o.Nodes = append(o.Nodes, n)
	}
	slices.SortFunc(o.Nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	const want = "warn||2 nodes have been in maintenance for more than a day|n0: in maintenance: Drained since " +
		"2026-03-01 12:00 UTC; n1: in maintenance: Drained since 2026-03-01 13:00 UTC|2026-03-01T12:00:00Z\n"
	if got := text(Of(survey.New(o))); got != want {
		t.Errorf("what needs somebody is\n%swant\n%s", got, want)
	}
}

// A node that was to be closed when it joined, and was not, is told of as long as it says so.
func TestNodesThatStayedOpen(t *testing.T) {
	o := objects("")
	n := aNode("n0", corev1.ConditionTrue, began)
	n.Annotations = map[string]string{nodestartup.NotClosedAnnotation: "nobody answered"}
	o.Nodes = append(o.Nodes, n, aNode("n1", corev1.ConditionTrue, began))
	if got := text(Of(survey.New(o))); got != "warn||1 node stayed open|n0: nobody answered|\n" {
		t.Errorf("what needs somebody is\n%s", got)
	}
}

func TestOneNode(t *testing.T) {
	o := survey.Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "new"}}}, Locate: time.LoadLocation}
	if got := text(Of(survey.New(o))); got != "bad||1 node is out of order|new: the node has not been ready yet|\n" {
		t.Errorf("a node that was never ready is told as %q", got)
	}
}

func TestNotMoreThanFitOnAPage(t *testing.T) {
	many := make([]v1alpha1.Phase, 50)
	for i := range many {
		many[i] = v1alpha1.PhaseHalted
	}
	items := Of(survey.New(objects(many...)))
	if last := items[len(items)-1]; len(items) != 21 || last.Title != "and 30 more" {
		t.Errorf("%d items, the last is %q", len(items), last.Title)
	}
}

// A variant that cannot be had needs somebody, and so do two in conflict, once.
func TestVariantsThatNeedSomebody(t *testing.T) {
	o := objects("", "", v1alpha1.PhaseHalted)
	vary := func(name, namespace, applies, conflict string) {
		v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		condition := func(kind, text string, good metav1.ConditionStatus) {
			c := metav1.Condition{Type: kind, Status: good, Message: text, LastTransitionTime: metav1.NewTime(began)}
			if text != "" {
				c.Status = map[metav1.ConditionStatus]metav1.ConditionStatus{"True": "False", "False": "True"}[good]
			}
			v.Status.Conditions = append(v.Status.Conditions, c)
		}
		condition(v1alpha1.VariantApplies, applies, metav1.ConditionTrue)
		condition(v1alpha1.VariantConflict, conflict, metav1.ConditionFalse)
		o.Variants = append(o.Variants, v)
	}
	const tied = "DaemonSet ds-01 on 2 nodes: a, b have the same priority"
	vary("b", "default", "", tied)
	vary("a", "default", "the API refuses it", tied)
	vary("c", "default", "", "")
	vary("d", "nobody", "it cannot be read", "")
	want := `bad|default/ds-02|halted|because of ds-02|
bad|default/ds-00|has a variant that cannot be had, a|the API refuses it|2026-03-01T12:00:00Z
bad||DaemonSetVariant nobody/d cannot be had|it cannot be read|2026-03-01T12:00:00Z
warn|default/ds-01|has variants in conflict|` + tied + `|2026-03-01T12:00:00Z
`
	if got := text(Of(survey.New(o))); got != want {
		t.Errorf("needs somebody:\n%s\nwant\n%s", got, want)
	}
}
