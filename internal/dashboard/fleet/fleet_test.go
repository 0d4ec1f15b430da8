package fleet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func aNode(name, zone string, ready corev1.ConditionStatus, cordoned bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
	if zone != "" {
		n.Labels["zone"] = zone
	}
	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: ready}}
	}
	return n
}

func mapOf(t *testing.T, label string, nodes ...*corev1.Node) *Map {
	t.Helper()
	return Of(survey.New(survey.Objects{Nodes: nodes, Locate: time.LoadLocation}), nil, label)
}

func TestGroupsAndStates(t *testing.T) {
	m := mapOf(t, "zone",
		aNode("n-10", "z-2", corev1.ConditionTrue, false), aNode("n-9", "z-2", corev1.ConditionTrue, true), aNode("n-1", "", corev1.ConditionUnknown, true),
		aNode("n-2", "z-10", corev1.ConditionFalse, false), aNode("n-02", "z-10", "", false))
	want := "[n-9 n-10 n-02 n-2 n-1] [{z-2 0 2} {z-10 2 2} {(none) 4 1}] [2 4 0 0 0]"
	if got := fmt.Sprint(m.Nodes, m.Groups, m.Cells); got != want { //nolint:staticcheck // The numbers are meant.
		t.Errorf("the map is %s, want %s", got, want)
	}
	if all := mapOf(t, "", aNode("b", "", corev1.ConditionTrue, false), aNode("a", "", corev1.ConditionTrue, false)); fmt.Sprint(all.Groups) != "[{ 0 2}]" || all.Nodes[0] != "a" {
		t.Errorf("without a label the groups are %v, the nodes %v", all.Groups, all.Nodes)
	}
	if none := mapOf(t, "zone"); none.Groups == nil || len(none.Nodes) != 0 {
		t.Errorf("a cluster without nodes is %+v", none)
	}
}

// A node that a NodeStartup has closed is told apart, where nothing else is wrong with it.
func TestNodesThatStart(t *testing.T) {
	var nodes []*corev1.Node
	for i, gate := range []v1alpha1.StartupGate{v1alpha1.GateJoin, v1alpha1.GateNone, v1alpha1.GateJoin, v1alpha1.GateJoin} {
		ready := corev1.ConditionTrue
		if i == 3 {
			ready = corev1.ConditionFalse
		}
		n := aNode(fmt.Sprint(i), "", ready, i == 2)
		n.Spec.Taints = []corev1.Taint{*nodestartup.Gate(nodestartup.Place{Startup: "all", Group: 1}, gate, time.Now())}
		nodes = append(nodes, n)
	}
	m := mapOf(t, "", nodes...)
	var got []string
	for _, state := range m.Cells {
		got = append(got, m.States[state])
	}
	if want := []string{Starting, Ready, Cordoned, NotReady}; !slices.Equal(got, want) {
		t.Errorf("the states are %v, want %v", got, want)
	}
}

// A node in maintenance is told apart, whether it answers or not.
func TestNodesInMaintenance(t *testing.T) {
	var nodes []*corev1.Node
	for i, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionTrue} {
		n := aNode(fmt.Sprint(i), "", ready, i == 0)
		kind := corev1.NodeMaintenanceInProgress
		if i == 2 {
			kind = corev1.NodeMaintenancePlanned
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue})
		nodes = append(nodes, n)
	}
	m := mapOf(t, "", nodes...)
	var got []string
	for _, state := range m.Cells {
		got = append(got, m.States[state])
	}
	if want := []string{InMaintenance, InMaintenance, Ready}; !slices.Equal(got, want) {
		t.Errorf("the states are %v, want %v", got, want)
	}
}

func TestChanges(t *testing.T) {
	one := mapOf(t, "zone", aNode("a", "z", corev1.ConditionTrue, false), aNode("b", "z", corev1.ConditionTrue, false))
	two := mapOf(t, "zone", aNode("a", "z", corev1.ConditionTrue, false), aNode("b", "z", corev1.ConditionFalse, false))
	if changes, same := two.Since(one); !same || !slices.Equal(changes, []Change{{1, 0}}) {
		t.Errorf("what changes is %v, %v", changes, same)
	}
	if changes, same := one.Since(one); !same || len(changes) != 0 {
		t.Errorf("nothing changes, and it tells %v, %v", changes, same)
	}
	for name, other := range map[string]*Map{
		"no map":        nil,
		"another node":  mapOf(t, "zone", aNode("a", "z", corev1.ConditionTrue, false), aNode("c", "z", corev1.ConditionTrue, false)),
		"another group": mapOf(t, "zone", aNode("a", "y", corev1.ConditionTrue, false), aNode("b", "z", corev1.ConditionTrue, false)),
		"other states":  {Nodes: one.Nodes, Groups: one.Groups, States: []string{"x"}, Cells: one.Cells},
	} {
		if _, same := one.Since(other); same {
			t.Errorf("%s: it is taken for the same map", name)
		}
	}
}

func TestLabels(t *testing.T) {
	var nodes []*corev1.Node
	for i := range maxGroups + 1 {
		n := aNode(fmt.Sprint(i), fmt.Sprint("z", i%3), corev1.ConditionTrue, false)
		n.Labels["same"], n.Labels[corev1.LabelArchStable], n.Labels["alpha"] = "x", fmt.Sprint(i%2), fmt.Sprint(i%2)
		nodes = append(nodes, n)
	}
	if got := fmt.Sprint(Labels(nodes, 10)); got != "[kubernetes.io/arch alpha zone]" {
		t.Errorf("one can group by %s", got)
	}
	if got := Labels(nodes, 1); len(got) != 1 {
		t.Errorf("%d labels, want one", len(got))
	}
	if Labels(nil, 1) == nil {
		t.Error("without nodes there is no list")
	}
}

func FuzzCompareNatural(f *testing.F) {
	f.Add("node-2", "node-10", "node-010")
	f.Add("", "0", "00")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if compareNatural(a, b) != -compareNatural(b, a) || (compareNatural(a, b) == 0) != (a == b) {
			t.Errorf("%q and %q: %d, %d", a, b, compareNatural(a, b), compareNatural(b, a))
		}
		if compareNatural(a, b) < 0 && compareNatural(b, c) < 0 && compareNatural(a, c) >= 0 {
			t.Errorf("%q < %q < %q, and not %[1]q < %[3]q", a, b, c)
		}
	})
}

func TestVersionsOfASmallFleet(t *testing.T) {
	nodes := make([]*corev1.Node, mostVersions)
	for i := range nodes {
		nodes[i] = aNode(fmt.Sprintf("n%d", i), "", corev1.ConditionTrue, false)
		nodes[i].Status.NodeInfo.KubeletVersion = fmt.Sprintf("v1.%d", i)
	}
	small := mapOf(t, "", nodes...)
	if len(small.Versions) != mostVersions || small.Versions[7] != "v1.7" {
		t.Errorf("the versions of a small fleet are %v", small.Versions)
	}
	upgraded := nodes[7].DeepCopy()
	upgraded.Status.NodeInfo.KubeletVersion = "v2"
	nodes[7] = upgraded
	if _, same := mapOf(t, "", nodes...).Since(small); same {
		t.Error("another version is not told")
	}
	if large := mapOf(t, "", append(nodes, aNode("one-more", "", corev1.ConditionTrue, false))...); large.Versions != nil {
		t.Errorf("a large fleet tells the versions %v", large.Versions)
	}
}
