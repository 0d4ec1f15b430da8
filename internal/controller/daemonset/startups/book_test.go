package startups

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// recorded keeps what the matrix is told.
type recorded struct {
	*matrix.Matrix
	told []matrix.Event
}

func (r *recorded) Step(e matrix.Event) {
	r.told = append(r.told, e)
	r.Matrix.Step(e)
}

func daemonSet(name string, tolerations ...corev1.Toleration) fact.DaemonSet {
	rules := placement.Compile(&corev1.PodSpec{Tolerations: tolerations})
	return fact.DaemonSet{UID: types.UID(name), Namespace: "ns", Name: name, Generation: 1, Revision: "r",
		Placement: rules, Earlier: &placement.Revisions{ByRevision: map[string]*placement.Rules{"r": rules}},
		Strategy: fact.Strategy{MaxUnavailable: intstr.FromInt32(1)}}
}

func nodeAt(value string) fact.Node {
	n := fact.Node{Name: "node"}
	if value != "" {
		place, _ := nodestartup.PlaceOf(value)
		n.Taints = []corev1.Taint{*nodestartup.Gate(place, v1alpha1.GateJoin, start)}
	}
	return n
}

func listing(name string, groups ...string) *v1alpha1.NodeStartup {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	for _, g := range groups {
		s.Spec.Groups = append(s.Spec.Groups, v1alpha1.StartupGroup{
			DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "ns", Name: g}}})
	}
	return s
}

// created are the DaemonSets for which pods are to be made now.
func created(m *recorded) (out []string) {
	for _, a := range m.Ready() {
		if c, is := a.(*action.CreatePod); is {
			out = append(out, string(c.Row()))
		}
	}
	slices.Sort(out)
	return out
}

// Daemons start on a node in the order of their groups. One that tolerates everything waits like the others; one that
// is not listed goes by what its template tolerates.
func TestDaemonsWaitForTheirGroup(t *testing.T) {
	m := &recorded{Matrix: matrix.New(row.Config{})}
	b := New(m)
	all := corev1.Toleration{Operator: corev1.TolerationOpExists}
	b.Tell(listing("s", "cni", "logs"), false)
	for _, e := range []matrix.Event{fact.Now{Time: start}, daemonSet("cni"), daemonSet("logs", all), daemonSet("tolerant", all),
		daemonSet("other"), nodeAt("s_1")} {
		b.Step(e)
	}
	for _, c := range []struct{ value, want string }{
		{"s_1", "cni tolerant"}, {"s_2", "logs"}, {"", "other"},
	} {
		b.Step(nodeAt(c.value))
		if got := strings.Join(created(m), " "); got != c.want {
			t.Errorf("with the gate [%s] pods are made of [%s], want [%s]", c.value, got, c.want)
		}
	}
}

// A daemon of an earlier revision waits for its group as well: the rollout may give a node that one.
func TestEarlierRevisionsWaitForTheirGroup(t *testing.T) {
	m := &recorded{Matrix: matrix.New(row.Config{})}
	b := New(m)
	b.Tell(listing("s", "cni", "logs"), false)
	b.Step(daemonSet("logs"))
	told := m.told[len(m.told)-1].(fact.DaemonSet)
	for value, want := range map[string]bool{"s_1": false, "s_2": true} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{Taints: nodeAt(value).Taints}}
		for of, rules := range map[string]*placement.Rules{"the present": told.Placement, "an earlier": told.Earlier.ByRevision["r"]} {
			is, _ := rules.Judge(node)
			if got := is == placement.ShouldRun; got != want {
				t.Errorf("with the gate [%s] %s revision is to have a daemon: %s", value, of, is)
			}
		}
	}
}

// On a node that follows another NodeStartup a DaemonSet goes by that one.
func TestDaemonsGoByTheStartupOfTheNode(t *testing.T) {
	m := &recorded{Matrix: matrix.New(row.Config{})}
	b := New(m)
	b.Tell(listing("a", "x", "logs"), false)
	b.Tell(listing("b", "logs"), false)
	for _, e := range []matrix.Event{fact.Now{Time: start}, daemonSet("logs"), nodeAt("a_1")} {
		b.Step(e)
	}
	if got := created(m); len(got) > 0 {
		t.Errorf("at a_1 pods are made of %v", got)
	}
	b.Step(nodeAt("b_1"))
	if got := created(m); len(got) != 1 {
		t.Errorf("at b_1 pods are made of %v, want logs", got)
	}
}

// Where two NodeStartups list DaemonSets in opposite orders, pods say the group in which they start on their node: an
// order of other nodes might never come to its end there.
func TestPodsSayTheOrderOfTheirNode(t *testing.T) {
	b := New(&recorded{Matrix: matrix.New(row.Config{})})
	first, second := listing("a", "storage", "cni"), listing("b", "cni", "storage", "logs")
	second.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "new"}}
	first.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "old"}}
	b.Tell(first, false)
	b.Tell(second, false)
	gate, _ := nodestartup.PlaceOf("b_1")
	old, starts := map[string]string{"rack": "old"}, []corev1.Taint{*nodestartup.Gate(gate, v1alpha1.GateJoin, start)}
	for _, n := range []fact.Node{{Name: "old", Labels: old}, {Name: "new", Labels: map[string]string{"rack": "new"}},
		{Name: "neither"}, {Name: "moved", Labels: old, Taints: starts},
		{Name: "gone", Labels: map[string]string{"rack": "new"}}} {
		b.Step(n)
	}
	b.Step(fact.NodeGone("gone"))
	for node, want := range map[string][3]int{"old": {1, 2, 3}, "new": {2, 1, 3}, "moved": {2, 1, 3}, "neither": {1, 2, 3},
		"gone": {1, 2, 3}, "unknown": {1, 2, 3}} {
		got := [3]int{}
		for i, set := range []string{"storage", "cni", "logs"} {
			got[i] = b.Turn("ns", set, node).Group
		}
		if got != want {
			t.Errorf("on node %s storage, cni and logs start in groups %v, want %v", node, got, want)
		}
	}
}

// A NodeStartup that comes, changes or goes is told of the DaemonSets that it concerns, and of no others.
func TestNothingIsToldOfOthers(t *testing.T) {
	m := &recorded{Matrix: matrix.New(row.Config{})}
	b := New(m)
	b.Step(fact.Now{Time: start})
	cni, other := daemonSet("cni"), daemonSet("other")
	b.Step(cni)
	b.Step(other)
	if fmt.Sprint(m.told[1:]) != fmt.Sprint([]matrix.Event{cni, other}) {
		t.Errorf("without a NodeStartup the matrix is told %v", m.told[1:])
	}
	m.told = nil
	b.Tell(listing("s", "cni"), false)
	again := listing("s", "cni")
	again.ResourceVersion = "2"
	b.Tell(again, false)
	b.Tell(again, true)
	if len(m.told) != 2 {
		t.Fatalf("it is told %d events, want that cni is listed and that it is no longer", len(m.told))
	}
	first, last := m.told[0].(fact.DaemonSet), m.told[1].(fact.DaemonSet)
	if first.UID != "cni" || first.Placement.Same(cni.Placement) || !last.Placement.Same(cni.Placement) {
		t.Errorf("it is told %+v, then %+v", first, last)
	}
	if none := (nodestartup.Turn{}); b.Turn("ns", "cni", "") != none || b.Turn("ns", "other", "") != none {
		t.Error("a DaemonSet is listed by nobody")
	}
	again.Spec.Groups[0].Then, again.Spec.Groups[0].Timeout = v1alpha1.ThenOpen, "1m"
	b.Tell(again, false)
	if want := (nodestartup.Turn{Group: 1, OpensAfter: time.Minute}); b.Turn("ns", "cni", "") != want {
		t.Errorf("the pods of cni are to say %+v, want %+v", b.Turn("ns", "cni", ""), want)
	}
}
