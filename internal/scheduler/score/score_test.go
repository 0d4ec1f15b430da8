package score

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/resources"
)

func TestTaintsPrefersFewerAdvisoryOnes(t *testing.T) {
	node := func(taints ...corev1.Taint) *fit.Node { return &fit.Node{Taints: taints} }
	a, b := corev1.Taint{Key: "a", Effect: "PreferNoSchedule"}, corev1.Taint{Key: "b", Effect: "PreferNoSchedule"}
	pod := fit.NewPod(&corev1.Pod{})
	if got, want := taints(pod, []*fit.Node{node(a, b), node(), node(b)}, nil), []int64{0, 100, 50}; !slices.Equal(got,
		want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := taints(pod, []*fit.Node{node(), node()}, nil); got != nil {
		t.Errorf("scores are %v without advisory taints, want none", got)
	}
}

func TestNodeAffinityAddsTheWeightsThatMatch(t *testing.T) {
	labelled := func(key, value string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: "In",
			Values: []string{value}}}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 30, Preference: labelled("disk", "ssd")}, {Weight: 10, Preference: labelled("zone", "z1")},
		},
	}}}}
	node := func(labels map[string]string) *fit.Node { return &fit.Node{Labels: labels} }
	got := nodeAffinity(fit.NewPod(pod), []*fit.Node{node(map[string]string{"disk": "ssd", "zone": "z1"}),
		node(map[string]string{"zone": "z1"}), node(nil)}, nil)
	if want := []int64{100, 25, 0}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := nodeAffinity(fit.NewPod(&corev1.Pod{}), nil, nil); got != nil {
		t.Errorf("scores of a pod without preferences are %v, want none", got)
	}
}

// world has a1 and a2 in zone a, b1 in zone b, c1 in zone c, and nowhere in none.
func world(pods ...*corev1.Pod) (*fit.Cluster, []*fit.Node) {
	c := fit.NewCluster()
	var nodes []*fit.Node
	for _, n := range [][2]string{{"a1", "a"}, {"a2", "a"}, {"b1", "b"}, {"c1", "c"}, {"nowhere", ""}} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n[0], Labels: map[string]string{"host": n[0]}}}
		if n[1] != "" {
			object.Labels["zone"] = n[1]
		}
		c.SetNode(object)
		nodes = append(nodes, c.Node(n[0]))
	}
	for _, pod := range pods {
		c.SetPod(pod)
	}
	return c, nodes
}

func pod(app, nodeName, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid),
			Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{NodeName: nodeName},
	}
}

func TestEvenSpreadPrefersTheEmptierPart(t *testing.T) {
	c, nodes := world(pod("web", "a1", "1"), pod("web", "a2", "2"), pod("web", "b1", "3"), pod("db", "c1", "4"))
	asked := func(action corev1.UnsatisfiableConstraintAction) *fit.Pod {
		p := pod("web", "", "p")
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: action,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		}}
		return fit.NewPod(p)
	}
	if got, want := evenSpread(asked(corev1.ScheduleAnyway), nodes, c), []int64{0, 0, 50, 100, 0}; !slices.Equal(got,
		want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := evenSpread(asked(corev1.DoNotSchedule), nodes, c); got != nil {
		t.Errorf("scores without advisory constraints are %v, want none", got)
	}
}

func TestPodAffinityAddsUpWeights(t *testing.T) {
	c, nodes := world(pod("db", "a1", "1"), pod("mq", "b1", "2"))
	about := func(app, key string, weight int32) corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{
			TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
	asked := pod("web", "", "p")
	asked.Spec.Affinity = &corev1.Affinity{
		PodAffinity:     &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{about("db", "zone", 10), about("db", "host", 10)}},
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{about("mq", "zone", 20)}},
	}
	if got, want := podAffinity(fit.NewPod(asked), nodes, c), []int64{100, 75, 0, 50, 50}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	c.DeletePod("2")
	if got, want := podAffinity(fit.NewPod(asked), nodes, c), []int64{100, 50, 0, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("scores are %v after the pod to stay away from has gone, want %v", got, want)
	}
	if got := podAffinity(fit.NewPod(pod("web", "", "p")), nodes, c); got != nil {
		t.Errorf("scores of a pod without preferences are %v, want none", got)
	}
}

func TestSiblingsPrefersNodesWithFewer(t *testing.T) {
	node := func(mine, others int) *fit.Node {
		return &fit.Node{Controlled: map[types.UID]int{"mine": mine, "others": others}}
	}
	nodes := []*fit.Node{node(0, 9), node(2, 0), node(1, 0)}
	if got, want := siblings(&fit.Pod{Controller: "mine"}, nodes, nil), []int64{100, 0, 50}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := siblings(&fit.Pod{}, nodes, nil); got != nil {
		t.Errorf("scores of a pod without controller are %v, want none", got)
	}
}

func TestLeastAllocatedPrefersTheEmptierNode(t *testing.T) {
	node := func(cpu, memory int64) *fit.Node {
		return &fit.Node{Allocatable: resources.Amounts{MilliCPU: 1000, Memory: 1000},
			Comparable: resources.Amounts{MilliCPU: cpu, Memory: memory}}
	}
	pod := &fit.Pod{Comparable: resources.Amounts{MilliCPU: 100, Memory: 100}}
	got := leastAllocated(pod, []*fit.Node{node(0, 0), node(900, 0), node(400, 400), node(2000, 2000)}, nil)
	if want := []int64{90, 45, 50, 0}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
}

// TestNodesWeighs: a taint weighs more than what is left on the node.
func TestNodesWeighs(t *testing.T) {
	empty := &fit.Node{Allocatable: resources.Amounts{MilliCPU: 1000, Memory: 1 << 40},
		Taints: []corev1.Taint{{Key: "a", Effect: "PreferNoSchedule"}}}
	full := &fit.Node{Allocatable: resources.Amounts{MilliCPU: 1000, Memory: 1 << 40},
		Comparable: resources.Amounts{MilliCPU: 1000}}
	got := Nodes(fit.NewPod(&corev1.Pod{}), []*fit.Node{empty, full}, fit.NewCluster())
	if len(got) != 2 || got[0] >= got[1] {
		t.Errorf("scores are %v, want the second node's to be higher", got)
	}
}
