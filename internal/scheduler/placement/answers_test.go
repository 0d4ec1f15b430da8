package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/scheduler/placement"
)

// sorts are pods that wait, one of each sort. Some depend on other nodes than the one that is asked.
func sorts() []*corev1.Pod {
	with := func(p *corev1.Pod, change func(*corev1.PodSpec)) *corev1.Pod {
		change(&p.Spec)
		return p
	}
	return []*corev1.Pod{
		pod("small", "1", 0), pod("large", "3", 0), pod("important", "2", 5), pod("free", "", 0),
		pod("small-important", "1", 5), pod("small-too", "1", 0),
		with(pod("tolerant", "1", 0), func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "closed", Operator: corev1.TolerationOpExists}}
		}),
		with(pod("selecting", "1", 0), func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": "a"} }),
		with(pod("port", "1", 1), func(s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
		}),
		with(pod("alone", "1", 0), func(s *corev1.PodSpec) {
			s.Affinity = awayFrom(map[string]string{"name": "small"})
		}),
	}
}

// toCome is a daemon for which some nodes keep room.
var toCome = fit.NewPod(pod("to-come", "1", 1))

// askAll asks every node about a pod, and returns what is said of all and what may help.
func askAll(w *world, p *fit.Pod, promised map[string]string, coming map[string]bool) (string, fit.Change) {
	question, helpedBy, counts := w.cluster.Ask(p), fit.NodeAdded, map[string]int{}
	for _, n := range w.cluster.Nodes() {
		var others []*fit.Pod
		for _, other := range sorts() {
			if promised[other.Name] == n.Name && other.UID != p.UID && *other.Spec.Priority >= p.Priority {
				others = append(others, fit.NewPod(other))
			}
		}
		reasons := question.First(n, fit.Trial{})
		if len(reasons) == 0 {
			reasons = question.First(n, fit.Trial{Added: others})
		}
		if len(reasons) == 0 && coming[n.Name] && p.Priority <= toCome.Priority &&
			len(question.First(n, fit.Trial{Added: append(others, toCome)})) > 0 {
			reasons = []fit.Reason{{Rule: fit.TaintToleration, Text: placement.TextRoomKept}}
		}
		helpedBy |= reasons[0].Rule.HelpedBy()
		for _, r := range reasons {
			counts[r.Text]++
		}
	}
	var said []string
	for text, nodes := range counts {
		said = append(said, fmt.Sprintf("%d %s", nodes, text))
	}
	slices.Sort(said)
	if len(said) == 0 {
		return placement.NoNodes, helpedBy
	}
	return fmt.Sprintf("0/%d nodes are available: %s.", len(w.cluster.Nodes()), strings.Join(said, ", ")), helpedBy
}

// TestAnswersAreKept has nodes and pods come, change and go. Whoever has asked all the time gets the answers that
// somebody gets who asks for the first time, and those count every node once, by the reasons that it gives.
func TestAnswersAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(1)
		coming := map[string]bool{}     // nodes that await a daemon
		promised := map[string]string{} // nodes by the names of sorts
		view := func() placement.View {
			v := w.view()
			v.ToCome = func(n *fit.Node) []*fit.Pod {
				if !coming[n.Name] {
					return nil
				}
				return []*fit.Pod{toCome}
			}
			return v
		}
		name := func() string { return fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "node")) }
		asked := sorts()
		t.Repeat(map[string]func(*rapid.T){
			"set a node": func(t *rapid.T) {
				n := node(name(), fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "cpu")))
				n.Labels = map[string]string{"zone": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")}
				if rapid.IntRange(0, 2).Draw(t, "full") == 0 {
					n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1")
				}
				n.Spec.Unschedulable = rapid.IntRange(0, 5).Draw(t, "cordoned") == 0
				if rapid.IntRange(0, 2).Draw(t, "closed") == 0 {
					n.Spec.Taints = []corev1.Taint{{Key: "closed", Effect: corev1.TaintEffectNoSchedule}}
				}
				w.cluster.SetNode(n)
			},
			"delete a node": func(*rapid.T) { w.cluster.DeleteNode(name()) },
			"run a pod": func(t *rapid.T) {
				p := sorts()[rapid.IntRange(0, len(asked)-1).Draw(t, "sort")]
				p.UID = types.UID(fmt.Sprint("running", rapid.IntRange(0, 9).Draw(t, "number")))
				p.Spec.Priority = new(rapid.Int32Range(0, 5).Draw(t, "priority"))
				w.run(name(), p)
			},
			"delete a pod": func(t *rapid.T) {
				w.cluster.DeletePod(types.UID(fmt.Sprint("running", rapid.IntRange(0, 9).Draw(t, "number"))))
			},
			"nominate": func(t *rapid.T) {
				p := asked[rapid.IntRange(0, len(asked)-1).Draw(t, "sort")]
				promised[p.Name] = rapid.SampledFrom([]string{"", "n0", "n1"}).Draw(t, "to")
				w.nominated.Set(fit.NewPod(p), promised[p.Name])
			},
			"expect a daemon": func(*rapid.T) { n := name(); coming[n] = !coming[n] },
			"": func(t *rapid.T) {
				for _, p := range asked {
					facts := fit.NewPod(p)
					fresh := placement.New(1)
					kept, first := w.placer.Place(facts, view()), fresh.Place(facts, view())
					if kept.Node != first.Node {
						t.Fatalf("%s goes to %q, and to %q for who asks for the first time",
							p.Name, kept.Node, first.Node)
					}
					if kept.Node != "" {
						continue
					}
					made := w.placer.Preempt(facts, &kept.Diagnosis, view())
					would := fresh.Preempt(facts, &first.Diagnosis, view())
					if a, b := fmt.Sprint(made.Node, victims(made)), fmt.Sprint(would.Node, victims(would)); a != b {
						t.Fatalf("%s makes %s leave, and %s for who asks for the first time", p.Name, a, b)
					}
					said, want := kept.Diagnosis.Message(made.Message), first.Diagnosis.Message(would.Message)
					if said != want || kept.Diagnosis.HelpedBy != first.Diagnosis.HelpedBy {
						t.Fatalf("of %s is said\n%s (%b), and\n%s (%b)\nfor who asks for the first time",
							p.Name, said, kept.Diagnosis.HelpedBy, want, first.Diagnosis.HelpedBy)
					}
					all, helpedBy := askAll(w, facts, promised, coming)
					if said := kept.Diagnosis.Message(""); said != all || kept.Diagnosis.HelpedBy != helpedBy {
						t.Fatalf("of %s is said\n%s (%b), and the nodes say\n%s (%b)",
							p.Name, said, kept.Diagnosis.HelpedBy, all, helpedBy)
					}
				}
			},
		})
	})
}

// TestAlikePodsHaveOtherEnemies: the nodes are asked about the pod that is tried, not about another of its sort, which
// may have got an enemy since.
func TestAlikePodsHaveOtherEnemies(t *testing.T) {
	w := newWorld(1)
	if got := w.place(pod("unwanted", "1", 0)); got.Node != "" {
		t.Fatalf("without nodes a pod goes to %q", got.Node)
	}
	n := node("n", "4")
	n.Labels = map[string]string{"zone": "a"}
	w.cluster.SetNode(n)
	enemy := pod("enemy", "", 0)
	enemy.Spec.Affinity = awayFrom(map[string]string{"name": "unwanted"})
	w.run("n", enemy)
	if got := w.place(pod("wanted", "1", 0)); got.Node != "n" {
		t.Errorf("a pod without enemies goes to %q, want n: %s", got.Node, got.Diagnosis.Message(""))
	}
	if got := w.place(pod("unwanted", "1", 0)); got.Node != "" {
		t.Errorf("a pod goes to %q, where its enemy is", got.Node)
	}
}
