package podaffinity

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// Nodes a1 and a2 are in zone a, b1 in zone b, and nowhere in none.
func world(pods ...*corev1.Pod) *cache.Cache {
	c := cache.New()
	c.SetNamespace("default", map[string]string{"team": "x"})
	c.SetNamespace("other", map[string]string{"team": "y"})
	for name, zone := range map[string]string{"a1": "a", "a2": "a", "b1": "b", "nowhere": ""} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"host": name}}}
		if zone != "" {
			node.Labels["zone"] = zone
		}
		c.SetNode(node)
	}
	for _, pod := range pods {
		c.SetPod(pod)
	}
	return c
}

func pod(app, nodeName string, affinity *corev1.Affinity) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app, UID: types.UID(app + nodeName), Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: nodeName, Affinity: affinity},
	}
}

func elsewhere(p *corev1.Pod) *corev1.Pod {
	p.Namespace = "other"
	return p
}

func aboutTerm(app, key string, edits ...func(*corev1.PodAffinityTerm)) corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
	for _, edit := range edits {
		edit(&t)
	}
	return t
}

func near(terms ...corev1.PodAffinityTerm) *corev1.Affinity {
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

func awayFrom(terms ...corev1.PodAffinityTerm) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

func TestFilter(t *testing.T) {
	everywhere := func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }
	teamY := func(t *corev1.PodAffinityTerm) {
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "y"}}
	}
	byName := func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"other"} }
	unreadable := func(t *corev1.PodAffinityTerm) {
		t.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
	}
	all := []string{"a1", "a2", "b1", "nowhere"}
	tests := []struct {
		name   string
		world  *cache.Cache
		pod    *corev1.Pod
		fits   []string
		reason string
	}{
		{"near, by zone", world(pod("db", "a1", nil)), pod("web", "", near(aboutTerm("db", "zone"))), []string{"a1", "a2"}, ReasonAffinity},
		{"near, by host", world(pod("db", "a1", nil)), pod("web", "", near(aboutTerm("db", "host"))), []string{"a1"}, ReasonAffinity},
		{"near one that does not run", world(), pod("web", "", near(aboutTerm("db", "zone"))), nil, ReasonAffinity},
		{"near itself, the first", world(), pod("web", "", near(aboutTerm("web", "zone"))), []string{"a1", "a2", "b1"}, ReasonAffinity},
		{"near itself, the second", world(pod("web", "b1", nil)), pod("web", "", near(aboutTerm("web", "zone"))), []string{"b1"}, ReasonAffinity},
		{"near, all terms by one pod", world(pod("db", "a1", nil), pod("mq", "a1", nil)), pod("web", "", near(aboutTerm("db", "zone"), aboutTerm("mq", "zone"))), nil, ReasonAffinity},
		{"near one in another namespace", world(elsewhere(pod("db", "a1", nil))), pod("web", "", near(aboutTerm("db", "zone"))), nil, ReasonAffinity},
		{"near, namespace by name", world(elsewhere(pod("db", "a1", nil))), pod("web", "", near(aboutTerm("db", "zone", byName))), []string{"a1", "a2"}, ReasonAffinity},
		{"near, namespace by label", world(elsewhere(pod("db", "a1", nil)), pod("db", "b1", nil)), pod("web", "", near(aboutTerm("db", "zone", teamY))), []string{"a1", "a2"}, ReasonAffinity},
		{"near, every namespace", world(elsewhere(pod("db", "a1", nil)), pod("db", "b1", nil)), pod("web", "", near(aboutTerm("db", "host", everywhere))), []string{"a1", "b1"}, ReasonAffinity},
		{"unreadable", world(pod("db", "a1", nil)), pod("web", "", near(aboutTerm("db", "zone", unreadable))), nil, ReasonAffinity},
		{"away, by zone", world(pod("db", "a1", nil)), pod("web", "", awayFrom(aboutTerm("db", "zone"))), []string{"b1", "nowhere"}, ReasonAntiAffinity},
		{"away, either term", world(pod("db", "a1", nil), pod("mq", "b1", nil)), pod("web", "", awayFrom(aboutTerm("db", "host"), aboutTerm("mq", "host"))), []string{"a2", "nowhere"}, ReasonAntiAffinity},
		{"one does not want it near", world(pod("db", "a1", awayFrom(aboutTerm("web", "zone")))), pod("web", "", nil), []string{"b1", "nowhere"}, ReasonExisting},
		{"one does not want another near", world(pod("db", "a1", awayFrom(aboutTerm("mq", "zone")))), pod("web", "", nil), all, ""},
		{"nobody asks for anything", world(pod("db", "a1", nil)), pod("web", "", nil), all, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			check := Filter.Prepare(cache.NewPod(test.pod), test.world)
			var fits []string
			for _, name := range all {
				verdict := plugins.Verdict{}
				if check != nil {
					verdict = check(test.world.Node(name))
				}
				if verdict.Passed() {
					fits = append(fits, name)
				} else if !slices.Equal(verdict.Reasons, []string{test.reason}) {
					t.Errorf("node %s fails for %q, want %q", name, verdict.Reasons, test.reason)
				}
			}
			if !slices.Equal(fits, test.fits) {
				t.Errorf("fits on %v, want %v", fits, test.fits)
			}
		})
	}
}

func TestARepellingPodThatLeftRepelsNoMore(t *testing.T) {
	repelling := pod("db", "a1", awayFrom(aboutTerm("web", "zone")))
	c := world(repelling)
	c.DeletePod(repelling.UID)
	if check := Filter.Prepare(cache.NewPod(pod("web", "", nil)), c); check != nil {
		t.Error("a pod that left is still considered")
	}
}

func TestScorer(t *testing.T) {
	c := world(pod("db", "a1", nil), pod("mq", "b1", nil))
	nodes := []*cache.Node{c.Node("a1"), c.Node("a2"), c.Node("b1"), c.Node("nowhere")}
	affinity := &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 10, PodAffinityTerm: aboutTerm("db", "zone")}, {Weight: 10, PodAffinityTerm: aboutTerm("db", "host")},
		}},
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 20, PodAffinityTerm: aboutTerm("mq", "zone")},
		}},
	}
	if got, want := Scorer.Prepare(cache.NewPod(pod("web", "", affinity)), nodes, c), []int64{100, 75, 0, 50}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := Scorer.Prepare(cache.NewPod(pod("web", "", nil)), nodes, c); got != nil {
		t.Errorf("scores of a pod without preferences are %v, want none", got)
	}
}
