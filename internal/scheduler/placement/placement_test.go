package placement_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/scheduler/placement"
)

// world is a cluster with what is promised in it.
type world struct {
	cluster   *fit.Cluster
	nominated *placement.Nominations
	placer    *placement.Placer
	budgets   placement.Budgets
}

func newWorld(seed uint64, nodes ...*corev1.Node) *world {
	w := &world{cluster: fit.NewCluster(), nominated: placement.NewNominations(), placer: placement.New(seed)}
	for _, node := range nodes {
		w.cluster.SetNode(node)
	}
	return w
}

func (w *world) view() placement.View {
	return placement.View{Cluster: w.cluster, Nominated: w.nominated, Budgets: w.budgets}
}

func (w *world) place(pod *corev1.Pod) placement.Result {
	return w.placer.Place(fit.NewPod(pod), w.view())
}

// run puts a pod on a node that it fits or not.
func (w *world) run(nodeName string, pod *corev1.Pod) {
	pod.Spec.NodeName = nodeName
	w.cluster.SetPod(pod)
}

// preempt asks for victims for a pod that fits nowhere.
func (w *world) preempt(t testing.TB, pod *corev1.Pod) (placement.Preemption, string) {
	t.Helper()
	result := w.place(pod)
	if result.Node != "" {
		t.Fatalf("pod %s fits on %s, want a pod that fits nowhere", pod.Name, result.Node)
	}
	preemption := w.placer.Preempt(fit.NewPod(pod), &result.Diagnosis, w.view())
	return preemption, result.Diagnosis.Message(preemption.Message)
}

func victims(preemption placement.Preemption) []string {
	var names []string
	for _, victim := range preemption.Victims {
		names = append(names, victim.Name)
	}
	return names
}

func node(name, cpu string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"),
			corev1.ResourcePods: resource.MustParse("110"),
		}},
	}
}

func pod(name, cpu string, priority int32) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"name": name},
		},
		Spec: corev1.PodSpec{Priority: &priority, Containers: []corev1.Container{{}}},
	}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	return p
}

func pinned(p *corev1.Pod, nodeName string) *corev1.Pod {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchFields: []corev1.NodeSelectorRequirement{named(nodeName)}},
			},
		},
	}
	return p
}

func named(nodeName string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{
		Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName},
	}
}

// near has a pod be in the zone of pods with these labels.
func near(labels map[string]string) *corev1.Affinity {
	return &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: inZoneOf(labels)},
	}
}

// awayFrom has a pod be in no zone of pods with these labels.
func awayFrom(labels map[string]string) *corev1.Affinity {
	return &corev1.Affinity{
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: inZoneOf(labels)},
	}
}

func inZoneOf(labels map[string]string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}}
}

func TestMessages(t *testing.T) {
	tainted := node("tainted", "4")
	tainted.Spec.Taints = []corev1.Taint{
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
	}
	cordoned := node("cordoned", "4")
	cordoned.Spec.Unschedulable = true
	many := []*corev1.Node{tainted, cordoned}
	for i := range 10 {
		many = append(many, node(fmt.Sprintf("small%d", i), "1"))
	}
	contradiction := pinned(pod("p", "1", 0), "small1")
	terms := contradiction.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	terms[0].MatchFields = append(terms[0].MatchFields, named("small2"))
	selector := pod("p", "1", 0)
	selector.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	never := pod("p", "2", 0)
	policy := corev1.PreemptNever
	never.Spec.PreemptionPolicy = &policy
	tests := []struct {
		name  string
		nodes []*corev1.Node
		pod   *corev1.Pod
		want  string
	}{
		{"no nodes", nil, pod("p", "1", 0), "no nodes available to schedule pods"},
		{"several reasons, sorted as text", many, pod("p", "2", 0),
			"0/12 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, " +
				"10 Insufficient cpu. " +
				"preemption: 0/12 nodes are available: 12 Preemption is not helpful for scheduling."},
		{"selector", many[1:4], selector,
			"0/3 nodes are available: 1 node(s) were unschedulable, " +
				"2 node(s) didn't match Pod's node affinity/selector. " +
				"preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."},
		{"pinned and tainted", many[:3], pinned(pod("p", "1", 0), "tainted"),
			"0/3 nodes are available: 1 node(s) had untolerated taint(s), " +
				"2 node(s) didn't satisfy plugin(s) [NodeAffinity]. " +
				"preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."},
		{"pinned to a vanished node", many[:3], pinned(pod("p", "1", 0), "gone"),
			"0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]. " +
				"preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."},
		{"pinned to two nodes at once", many[:3], contradiction,
			"0/3 nodes are available: pod affinity terms conflict. " +
				"preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."},
		{"may not preempt", many[2:3], never,
			"0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, got := newWorld(0, test.nodes...).preempt(t, test.pod)
			if got != test.want {
				t.Errorf("message is\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestEqualSeedsPlaceAlikeAndNodesShareThePods(t *testing.T) {
	place := func(seed uint64) (placed []string) {
		w := newWorld(seed, node("a", "9"), node("b", "9"), node("c", "9"))
		for i := range 30 {
			result := w.place(pod(fmt.Sprintf("p%d", i), "", 0))
			placed = append(placed, result.Node)
		}
		return placed
	}
	first := place(1)
	if again := place(1); !slices.Equal(first, again) {
		t.Errorf("seed 1 placed pods on %v, then on %v", first, again)
	}
	if other := place(2); slices.Equal(first, other) {
		t.Errorf("seeds 1 and 2 placed pods alike: %v", first)
	}
	for _, name := range []string{"a", "b", "c"} {
		if !slices.Contains(first, name) {
			t.Errorf("no pod of 30 went to %s, which is as good as the others: %v", name, first)
		}
	}
}

func TestSearchOverManyNodesGivesAllTheirTurn(t *testing.T) {
	w := newWorld(0)
	for i := range 1000 {
		w.cluster.SetNode(node(fmt.Sprintf("n%d", i), "1"))
	}
	used := map[string]bool{}
	for i := range 1000 {
		p := pod(fmt.Sprintf("p%d", i), "1", 0)
		result := w.place(p)
		if used[result.Node] || result.Node == "" {
			t.Fatalf("pod %d went to %q, want a node that is still free", i, result.Node)
		}
		used[result.Node] = true
		w.cluster.Assume(fit.NewPod(p), result.Node)
	}
}

func TestSearchStartsWhereTheLastOneStopped(t *testing.T) {
	w := newWorld(0)
	for i := range 1000 {
		w.cluster.SetNode(node(fmt.Sprintf("n%03d", i), "1"))
	}
	thirds := map[byte]int{}
	for i := range 30 {
		thirds[w.place(pod(fmt.Sprintf("p%d", i), "", 0)).Node[1]/3]++
	}
	if len(thirds) < 3 {
		t.Errorf("30 pods without requests went to %d parts of the cluster, want all", len(thirds))
	}
}

// TestSearchGoesOnAfterOneOverFewNodes: pods of other sorts, that fit on few nodes or on none, do not have the searches
// of a pod start where they have been.
func TestSearchGoesOnAfterOneOverFewNodes(t *testing.T) {
	only := pod("only", "1m", 0)
	only.Spec.NodeSelector = map[string]string{"only": ""}
	for name, between := range map[string]*corev1.Pod{"fits nowhere": pod("large", "9", 0), "fits on one": only} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(0)
			first := node("first", "4")
			first.Labels = only.Spec.NodeSelector
			w.cluster.SetNode(first)
			for i := range 999 {
				w.cluster.SetNode(node(fmt.Sprintf("n%d", i), "4"))
			}
			view, seen := w.view(), map[string]bool{}
			view.ToCome = func(n *fit.Node) []*fit.Pod {
				seen[n.Name] = true
				return nil
			}
			for range 30 {
				w.place(between)
				w.placer.Place(fit.NewPod(pod("p", "1", 0)), view)
			}
			if len(seen) < 1000 {
				t.Errorf("30 searches looked at %d of 1000 nodes, want all", len(seen))
			}
		})
	}
}

func TestNominatedRoomIsKept(t *testing.T) {
	w := newWorld(0, node("a", "2"))
	important := pod("important", "2", 10)
	w.nominated.Set(fit.NewPod(important), "a")
	if result := w.place(pod("lesser", "1", 5)); result.Node != "" {
		t.Errorf("a lesser pod took the room of a nominated one on %s", result.Node)
	}
	if result := w.place(pod("greater", "1", 11)); result.Node != "a" {
		t.Errorf("a more important pod is kept out by a nomination: %+v", result.Diagnosis)
	}
	important.Status.NominatedNodeName = "a"
	w.cluster.SetNode(node("b", "9"))
	if result := w.place(important); result.Node != "a" {
		t.Errorf("the nominated pod went to %q, want its node a though b has more room", result.Node)
	}
}

func TestPreemptsAsLittleAsPossible(t *testing.T) {
	t.Run("minimal set on the pinned node", func(t *testing.T) {
		w := newWorld(0, node("a", "4"), node("b", "4"))
		w.run("a", pod("low1", "1", 1))
		w.run("a", pod("low2", "2", 2))
		w.run("a", pod("low3", "1", 3))
		got, text := w.preempt(t, pinned(pod("daemon", "2", 100), "a"))
		if got.Node != "a" || !slices.Equal(victims(got), []string{"low2"}) {
			t.Errorf("preempts %v on %q, want low2 on a: low1 alone is not enough, low3 is more important",
				victims(got), got.Node)
		}
		want := "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
		if text != want {
			t.Errorf("message is %q, want %q", text, want)
		}
	})
	t.Run("equal priority is spared", func(t *testing.T) {
		w := newWorld(0, node("a", "1"))
		w.run("a", pod("peer", "1", 5))
		got, text := w.preempt(t, pod("p", "1", 5))
		if got.Node != "" {
			t.Errorf("preempts %v, want nobody", victims(got))
		}
		want := "0/1 nodes are available: 1 Insufficient cpu. " +
			"preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
		if text != want {
			t.Errorf("message is %q, want %q", text, want)
		}
	})
	t.Run("not enough to gain", func(t *testing.T) {
		w := newWorld(0, node("a", "2"))
		w.run("a", pod("peer", "1", 5))
		w.run("a", pod("low", "1", 1))
		_, text := w.preempt(t, pod("p", "2", 5))
		want := "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu."
		if text != want {
			t.Errorf("message is %q, want %q", text, want)
		}
	})
	t.Run("node with the least important victims", func(t *testing.T) {
		w := newWorld(0, node("a", "1"), node("b", "2"), node("c", "1"))
		w.run("a", pod("middle", "1", 5))
		w.run("b", pod("low1", "1", 1))
		w.run("b", pod("low2", "1", 1))
		w.run("c", pod("low3", "1", 3))
		got, _ := w.preempt(t, pod("p", "1", 9))
		if got.Node != "b" || len(got.Victims) != 1 {
			t.Errorf("preempts %v on %s, want one pod on b", victims(got), got.Node)
		}
	})
	t.Run("host port", func(t *testing.T) {
		w := newWorld(0, node("a", "4"))
		holder, wanting := pod("holder", "1", 0), pod("wanting", "1", 1)
		for _, p := range []*corev1.Pod{holder, wanting} {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
		}
		w.run("a", holder)
		w.run("a", pod("bystander", "1", 0))
		got, _ := w.preempt(t, wanting)
		if !slices.Equal(victims(got), []string{"holder"}) {
			t.Errorf("preempts %v, want the holder of the port", victims(got))
		}
	})
}

// TestPreemptionLooksAtWhoIsLeft: what the rules about other pods count must be without the victims.
func TestPreemptionLooksAtWhoIsLeft(t *testing.T) {
	zoned := func(name string) *corev1.Node {
		n := node(name, "9")
		n.Labels = map[string]string{"zone": name}
		return n
	}
	web := func(name string, priority int32) *corev1.Pod {
		p := pod(name, "1", priority)
		p.Labels = map[string]string{"app": "web"}
		return p
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	awayFromWeb := awayFrom(selector.MatchLabels)
	spread := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector,
		}}
		return p
	}
	t.Run("spread", func(t *testing.T) {
		// Zone b is as empty as may be, but has no room; in zone a two of three must leave.
		w := newWorld(0, zoned("a"), zoned("b"))
		for i := range 3 {
			w.run("a", web(fmt.Sprintf("low%d", i), int32(i)))
		}
		w.run("b", pod("peer", "9", 9))
		w.run("b", web("web-b", 9))
		got, _ := w.preempt(t, spread(web("p", 9)))
		if got.Node != "a" || !slices.Equal(victims(got), []string{"low1", "low0"}) {
			t.Errorf("preempts %v on %q, want the two least on a", victims(got), got.Node)
		}
	})
	t.Run("spread, where the victims are what makes it even", func(t *testing.T) {
		// Whoever leaves a makes a the emptiest part, but not by less than before.
		w := newWorld(0, zoned("a"), zoned("b"))
		w.run("a", web("low", 1))
		w.run("b", web("web-b", 9))
		full := pod("full", "9", 9)
		w.run("b", full)
		w.run("a", pod("bystander", "8", 9))
		got, _ := w.preempt(t, spread(web("p", 9)))
		if got.Node != "a" || !slices.Equal(victims(got), []string{"low"}) {
			t.Errorf("preempts %v on %q, want low on a", victims(got), got.Node)
		}
	})
	t.Run("anti-affinity", func(t *testing.T) {
		w := newWorld(0, zoned("a"))
		w.run("a", web("low", 1))
		w.run("a", pod("bystander", "1", 1))
		p := pod("p", "1", 9)
		p.Spec.Affinity = awayFromWeb
		got, _ := w.preempt(t, p)
		if !slices.Equal(victims(got), []string{"low"}) {
			t.Errorf("preempts %v, want only the one that the pod does not want near it", victims(got))
		}
	})
	t.Run("anti-affinity of the victim", func(t *testing.T) {
		w := newWorld(0, zoned("a"))
		low := pod("low", "1", 1)
		low.Spec.Affinity = awayFromWeb
		w.run("a", low)
		w.run("a", pod("bystander", "1", 1))
		got, _ := w.preempt(t, web("p", 9))
		if !slices.Equal(victims(got), []string{"low"}) {
			t.Errorf("preempts %v, want only the one that does not want the pod near it", victims(got))
		}
	})
	t.Run("the pod that it wants to be near is no victim", func(t *testing.T) {
		w := newWorld(0, zoned("a"))
		w.run("a", web("low", 1))
		w.run("a", pod("full", "8", 2))
		p := pod("p", "1", 9)
		p.Spec.Affinity = near(selector.MatchLabels)
		if got, text := w.preempt(t, p); got.Node != "" {
			t.Errorf("preempts %v on %s (%s), want nobody: without low the pod cannot run there",
				victims(got), got.Node, text)
		}
	})
}

// TestNotNearAPodThatMayNeverCome: a nominated pod keeps its room, but nobody can rely on it.
func TestNotNearAPodThatMayNeverCome(t *testing.T) {
	n := node("a", "9")
	n.Labels = map[string]string{"zone": "a"}
	w := newWorld(0, n)
	promised := pod("promised", "1", 9)
	w.nominated.Set(fit.NewPod(promised), "a")
	p := pod("p", "1", 1)
	p.Spec.Affinity = near(promised.Labels)
	if result := w.place(p); result.Node != "" {
		t.Error("a pod was placed near one that is not there yet")
	}
	w.run("a", promised)
	if result := w.place(p); result.Node != "a" {
		t.Errorf("a pod does not fit near the one that came: %v", result.Diagnosis)
	}
}

func TestPreemptionSparesBudgets(t *testing.T) {
	w := newWorld(0, node("a", "1"), node("b", "1"))
	w.run("a", pod("guarded", "1", 1))
	w.run("b", pod("free", "1", 2))
	w.budgets = placement.Budgets{{
		Namespace: "default", Selector: labels.SelectorFromSet(labels.Set{"name": "guarded"}), Allowed: 0,
	}}
	got, _ := w.preempt(t, pod("p", "1", 9))
	if got.Node != "b" {
		t.Errorf("preempts on %s, want b: the budget of the pod on a is used up, though it has a lower priority",
			got.Node)
	}
	w.budgets[0].Allowed = 1
	if got, _ = w.preempt(t, pod("p", "1", 9)); got.Node != "a" {
		t.Errorf("preempts on %s, want a: its budget allows one", got.Node)
	}
	w.budgets[0].Allowed = 0
	if got, _ = w.preempt(t, pinned(pod("q", "1", 9), "a")); !slices.Equal(victims(got), []string{"guarded"}) {
		t.Errorf("preempts %v, want guarded: a budget does not save it when nothing else helps", victims(got))
	}
}

func TestWaitsForVictimsInsteadOfTakingMore(t *testing.T) {
	w := newWorld(0, node("a", "2"))
	w.run("a", pod("low1", "1", 1))
	w.run("a", pod("low2", "1", 1))
	p := pod("p", "1", 9)
	first, _ := w.preempt(t, p)
	w.nominated.Preempt(fit.NewPod(p), first.Node, first.Victims)
	second, text := w.preempt(t, p)
	if second.Node != "" {
		t.Errorf("preempts %v while %v is still leaving", victims(second), victims(first))
	}
	want := "0/1 nodes are available: 1 Insufficient cpu. " +
		"preemption: not eligible due to a terminating pod on the nominated node."
	if text != want {
		t.Errorf("message is %q, want %q", text, want)
	}
}

// TestPlacementsAndPreemptionsHold checks, for random clusters, that a placed pod fits, and that victims are lesser
// pods without which the pod fits, none of them too many.
func TestPlacementsAndPreemptionsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"))
		free := map[string]int64{}
		type running struct{ cpu, priority int64 }
		on := map[string]map[string]running{}
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			name := fmt.Sprintf("n%d", i)
			free[name] = rapid.Int64Range(1, 6).Draw(t, "cpu")
			w.cluster.SetNode(node(name, fmt.Sprint(free[name])))
			on[name] = map[string]running{}
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
			name, cpu := fmt.Sprintf("p%d", i), rapid.Int64Range(1, 3).Draw(t, "cpu")
			priority := rapid.Int64Range(0, 3).Draw(t, "priority")
			p := pod(name, fmt.Sprint(cpu), int32(priority))
			result := w.place(p)
			if result.Node != "" {
				if free[result.Node] < cpu {
					t.Fatalf("pod %s of %d went to node %s with %d free", name, cpu, result.Node, free[result.Node])
				}
				free[result.Node] -= cpu
				on[result.Node][name] = running{cpu, priority}
				w.run(result.Node, p)
				continue
			}
			for nodeName, room := range free {
				if room >= cpu {
					t.Fatalf("pod %s of %d was not placed though node %s has %d free", name, cpu, nodeName, room)
				}
			}
			preemption := w.placer.Preempt(fit.NewPod(p), &result.Diagnosis, w.view())
			if preemption.Node == "" {
				for nodeName, pods := range on {
					room := free[nodeName]
					for _, other := range pods {
						if other.priority < priority {
							room += other.cpu
						}
					}
					if room >= cpu && len(pods) > 0 {
						t.Fatalf("no victims for pod %s of %d, though node %s could have %d", name, cpu, nodeName, room)
					}
				}
				continue
			}
			room := free[preemption.Node]
			for _, victim := range victims(preemption) {
				other := on[preemption.Node][victim]
				if other.priority >= priority {
					t.Fatalf("victim %s is as important as pod %s", victim, name)
				}
				room += other.cpu
			}
			if room < cpu {
				t.Fatalf("pod %s of %d preempts %v, which leaves only %d", name, cpu, victims(preemption), room)
			}
			for _, victim := range victims(preemption) {
				if room-on[preemption.Node][victim].cpu >= cpu {
					t.Fatalf("victim %s of %v need not leave for pod %s", victim, victims(preemption), name)
				}
			}
		}
	})
}

func BenchmarkPinnedPod(b *testing.B) {
	for _, nodes := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := newWorld(0)
			for i := range nodes {
				w.cluster.SetNode(node(fmt.Sprintf("n%d", i), "64"))
			}
			p := pinned(pod("daemon", "100m", 0), fmt.Sprintf("n%d", nodes/2))
			p.Spec.Tolerations = []corev1.Toleration{
				{Key: "a", Operator: "Exists"}, {Key: corev1.TaintNodeUnschedulable, Operator: "Exists"},
			}
			facts := fit.NewPod(p)
			b.ReportAllocs()
			for b.Loop() {
				result := w.placer.Place(facts, w.view())
				w.cluster.Assume(facts, result.Node)
				w.cluster.Forget(facts.UID)
			}
		})
	}
}

func BenchmarkAnyNode(b *testing.B) {
	for _, nodes := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := newWorld(0)
			for i := range nodes {
				w.cluster.SetNode(node(fmt.Sprintf("n%d", i), "64"))
			}
			facts := fit.NewPod(pod("web", "100m", 0))
			b.ReportAllocs()
			for b.Loop() {
				w.placer.Place(facts, w.view())
			}
		})
	}
}

// Room that is kept for daemons to come goes to no pod of the same priority or a lower one, nor to another daemon, but
// to the daemon itself and to what is more important.
func TestRoomForDaemonsToCome(t *testing.T) {
	owned := func(p *corev1.Pod, by types.UID) *corev1.Pod {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: by, Controller: new(true),
		}}
		return p
	}
	place := func(p *corev1.Pod, before ...*corev1.Pod) (placement.Result, placement.Preemption, string) {
		w := newWorld(1, node("starts", "4"))
		for _, other := range before {
			w.run("starts", other)
		}
		view := w.view()
		view.ToCome = func(*fit.Node) []*fit.Pod { return []*fit.Pod{fit.NewPod(owned(pod("to-come", "2", 10), "d"))} }
		result := w.placer.Place(fit.NewPod(p), view)
		preemption := w.placer.Preempt(fit.NewPod(p), &result.Diagnosis, view)
		return result, preemption, result.Diagnosis.Message("")
	}
	const full = "0/1 nodes are available: 1 Insufficient cpu."
	const kept = "0/1 nodes are available: 1 " + placement.TextRoomKept + "."
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want string // "" for a pod that fits
	}{
		{"beside it", pod("p", "2", 0), ""},
		{"in its room", pod("p", "3", 0), kept},
		{"as important", pod("p", "3", 10), kept},
		{"more important", pod("p", "3", 11), ""},
		{"itself", owned(pod("p", "3", 10), "d"), ""},
		{"another daemon", owned(pod("p", "3", 10), "e"), kept},
		{"more than there is", pod("p", "5", 0), full},
	} {
		result, _, message := place(c.pod)
		if fits := c.want == ""; (result.Node != "") != fits || !fits && message != c.want {
			t.Errorf("%s: it is on %q: %s", c.name, result.Node, message)
		}
		if helps := result.Diagnosis.HelpedBy&fit.TaintsChanged != 0; helps != (c.want == kept) {
			t.Errorf("%s: another taint helps: %v", c.name, helps)
		}
	}
	// One that may make others go makes room beside the daemon, not in its place.
	_, preemption, _ := place(pod("p", "2", 5), pod("small", "1", 0))
	if names := victims(preemption); len(names) != 1 || names[0] != "small" {
		t.Errorf("victims are %v", names)
	}
	if _, preemption, _ := place(pod("p", "3", 5), pod("small", "1", 0)); preemption.Node != "" {
		t.Errorf("victims are %v, and it has no room without them", victims(preemption))
	}
}
