package topologyspread

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/scheduler/cache"
)

var names = []string{"a", "b", "c", "tainted", "nowhere"}

// world has one node in each of the zones a, b and c, a tainted one in zone d, and one in no zone; the first three run the
// given numbers of pods.
func world(counts ...int) *cache.Cache {
	c := cache.New()
	for i, name := range names {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": name, "disk": "ssd"}}}
		switch name {
		case "c":
			node.Labels["disk"] = "hdd"
		case "tainted":
			node.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		case "nowhere":
			delete(node.Labels, "zone")
		}
		c.SetNode(node)
		if i < len(counts) {
			for n := range counts[i] {
				c.SetPod(pod(fmt.Sprintf("%s%d", name, n), name))
			}
		}
	}
	return c
}

func pod(name, nodeName string, constraints ...corev1.TopologySpreadConstraint) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web", "hash": "1"}},
		Spec:       corev1.PodSpec{NodeName: nodeName, TopologySpreadConstraints: constraints},
	}
}

func byZone(edits ...func(*corev1.TopologySpreadConstraint)) corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
	for _, edit := range edits {
		edit(&c)
	}
	return c
}

func TestFilter(t *testing.T) {
	honour := corev1.NodeInclusionPolicyHonor
	taints := func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = &honour }
	skew := func(n int32) func(*corev1.TopologySpreadConstraint) {
		return func(c *corev1.TopologySpreadConstraint) { c.MaxSkew = n }
	}
	domains := func(n int32) func(*corev1.TopologySpreadConstraint) {
		return func(c *corev1.TopologySpreadConstraint) { c.MinDomains = &n }
	}
	others := func(c *corev1.TopologySpreadConstraint) { c.LabelSelector.MatchLabels = map[string]string{"app": "db"} }
	sameHash := func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"hash"} }
	onSSD := pod("p", "", byZone(taints))
	onSSD.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	newHash := pod("p", "", byZone(taints, sameHash))
	newHash.Labels["hash"] = "2"
	tests := []struct {
		name  string
		world *cache.Cache
		pod   *corev1.Pod
		fits  []string
	}{
		{"even", world(1, 1, 1), pod("p", "", byZone(taints)), []string{"a", "b", "c", "tainted"}},
		{"only the emptiest", world(1, 0, 1), pod("p", "", byZone(taints)), []string{"b", "tainted"}},
		{"an empty zone that the pod cannot use counts", world(1, 1, 1), pod("p", "", byZone()), []string{"tainted"}},
		{"more skew", world(2, 1, 0), pod("p", "", byZone(taints, skew(2))), []string{"b", "c", "tainted"}},
		{"a zone that the selector excludes does not count", world(1, 1, 0), onSSD, []string{"a", "b", "c", "tainted"}},
		{"too few zones", world(1, 0, 0), pod("p", "", byZone(taints, domains(4))), []string{"b", "c", "tainted"}},
		{"too few zones, all taken", world(1, 1, 1), pod("p", "", byZone(taints, domains(4))), []string{"tainted"}},
		{"about other pods", world(3, 0, 0), pod("p", "", byZone(taints, others)), []string{"a", "b", "c", "tainted"}},
		{"about pods of the same revision", world(3, 0, 0), newHash, []string{"a", "b", "c", "tainted"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			check := Filter.Prepare(cache.NewPod(test.pod), test.world)
			var fits []string
			for _, name := range names {
				verdict := check(test.world.Node(name))
				switch {
				case verdict.Passed():
					fits = append(fits, name)
				case name == "nowhere" && verdict.Reasons[0] != ReasonMissingLabel, name != "nowhere" && verdict.Reasons[0] != Reason:
					t.Errorf("node %s fails for %q", name, verdict.Reasons)
				}
			}
			if !slices.Equal(fits, test.fits) {
				t.Errorf("fits on %v, want %v", fits, test.fits)
			}
		})
	}
	if Filter.Prepare(cache.NewPod(pod("p", "")), world()) != nil {
		t.Error("a pod without constraints is checked, want no check")
	}
}

func TestPodsThatLeaveDoNotCount(t *testing.T) {
	c := world(1)
	leaving, now := pod("a0", "a"), metav1.Now()
	leaving.DeletionTimestamp = &now
	c.SetPod(leaving)
	check := Filter.Prepare(cache.NewPod(pod("p", "", byZone())), c)
	if verdict := check(c.Node("a")); !verdict.Passed() {
		t.Errorf("node a fails for %q, though its only pod is leaving", verdict.Reasons)
	}
}

func TestScorerPrefersTheEmptierPart(t *testing.T) {
	c := world(2, 1, 0)
	nodes := []*cache.Node{c.Node("a"), c.Node("b"), c.Node("c"), c.Node("nowhere")}
	anyway := byZone(func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway })
	got := Scorer.Prepare(cache.NewPod(pod("p", "", anyway)), nodes, c)
	if want := []int64{0, 50, 100, 0}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := Scorer.Prepare(cache.NewPod(pod("p", "", byZone())), nodes, c); got != nil {
		t.Errorf("scores without advisory constraints are %v, want none", got)
	}
}
