package fit

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var spreadNodes = []string{"a", "b", "c", "tainted", "nowhere"}

// zones has one node in each of the zones a, b and c, a tainted one in zone d, and one in no zone; the first three run
// the given numbers of pods.
func zones(counts ...int) *Cluster {
	c := NewCluster()
	for i, name := range spreadNodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"zone": name, "disk": "ssd"}}}
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
				c.SetPod(webPod(fmt.Sprintf("%s%d", name, n), name))
			}
		}
	}
	return c
}

func webPod(name, nodeName string, constraints ...corev1.TopologySpreadConstraint) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
			Labels: map[string]string{"app": "web", "hash": "1"}},
		Spec: corev1.PodSpec{NodeName: nodeName, TopologySpreadConstraints: constraints},
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

func TestEvenSpread(t *testing.T) {
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
	onSSD := webPod("p", "", byZone(taints))
	onSSD.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	newHash := webPod("p", "", byZone(taints, sameHash))
	newHash.Labels["hash"] = "2"
	ignore := corev1.NodeInclusionPolicyIgnore
	pinned, pinnedAnyway := webPod("p", "", byZone()), webPod("p", "",
		byZone(func(c *corev1.TopologySpreadConstraint) { c.NodeAffinityPolicy = &ignore }))
	for _, p := range []*corev1.Pod{pinned, pinnedAnyway} {
		p.Spec.Affinity = requiring(nil, nodeTerm{MatchFields: []requirement{named("a")}}).Spec.Affinity
	}
	tests := []struct {
		name  string
		zones *Cluster
		pod   *corev1.Pod
		fits  []string
	}{
		{"even", zones(1, 1, 1), webPod("p", "", byZone(taints)), []string{"a", "b", "c", "tainted"}},
		{"only the emptiest", zones(1, 0, 1), webPod("p", "", byZone(taints)), []string{"b", "tainted"}},
		{"an empty zone that the pod cannot use counts", zones(1, 1, 1), webPod("p", "", byZone()),
			[]string{"tainted"}},
		{"more skew", zones(2, 1, 0), webPod("p", "", byZone(taints, skew(2))), []string{"b", "c", "tainted"}},
		{"a zone that the selector excludes does not count", zones(1, 1, 0), onSSD, []string{"a", "b", "c", "tainted"}},
		{"too few zones", zones(1, 0, 0), webPod("p", "", byZone(taints, domains(4))), []string{"b", "c", "tainted"}},
		{"too few zones, all taken", zones(1, 1, 1), webPod("p", "", byZone(taints, domains(4))), []string{"tainted"}},
		{"about other pods", zones(3, 0, 0), webPod("p", "", byZone(taints, others)),
			[]string{"a", "b", "c", "tainted"}},
		{"a pod that names its node is spread over no other", zones(3, 0, 0), pinned,
			[]string{"a", "b", "c", "tainted"}},
		{"a pod that names its node, but says that this does not matter", zones(3, 0, 0), pinnedAnyway,
			[]string{"b", "c", "tainted"}},
		{"about pods of the same revision", zones(3, 0, 0), newHash, []string{"a", "b", "c", "tainted"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var fits []string
			for _, name := range spreadNodes {
				reasons := of(EvenSpread, test.zones, NewPod(test.pod), test.zones.Node(name), Trial{})
				want := Reason{Rule: EvenSpread, Text: TextSpread, About: "zone"}
				if name == "nowhere" {
					want.Text, want.Hopeless = TextMissingLabel, true
				}
				if len(reasons) == 0 {
					fits = append(fits, name)
				} else if !slices.Equal(reasons, []Reason{want}) {
					t.Errorf("node %s fails for %v, want %v", name, reasons, want)
				}
			}
			if !slices.Equal(fits, test.fits) {
				t.Errorf("fits on %v, want %v", fits, test.fits)
			}
		})
	}
}

func TestPodsThatLeaveDoNotCount(t *testing.T) {
	c := zones(1)
	leaving, now := webPod("a0", "a"), metav1.Now()
	leaving.DeletionTimestamp = &now
	c.SetPod(leaving)
	if reasons := of(EvenSpread, c, NewPod(webPod("p", "", byZone())), c.Node("a"), Trial{}); len(reasons) > 0 {
		t.Errorf("node a fails for %v, though its only pod is leaving", reasons)
	}
}

// Nodes a1 and a2 are in zone a, b1 in zone b, and nowhere in none.
func neighbourhood(pods ...*corev1.Pod) *Cluster {
	c := NewCluster()
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

func appPod(app, nodeName string, affinity *corev1.Affinity) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app, UID: types.UID(app + nodeName),
			Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{NodeName: nodeName, Affinity: affinity},
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

func TestPodAffinity(t *testing.T) {
	everywhere := func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }
	teamY := func(t *corev1.PodAffinityTerm) {
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "y"}}
	}
	byName := func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"other"} }
	unreadable := func(t *corev1.PodAffinityTerm) {
		t.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app",
			Operator: "Near"}}}
	}
	all := []string{"a1", "a2", "b1", "nowhere"}
	tests := []struct {
		name   string
		world  *Cluster
		pod    *corev1.Pod
		fits   []string
		reason string
	}{
		{"near, by zone", neighbourhood(appPod("db", "a1", nil)), appPod("web", "", near(aboutTerm("db", "zone"))),
			[]string{"a1", "a2"}, TextAffinity},
		{"near, by host", neighbourhood(appPod("db", "a1", nil)), appPod("web", "", near(aboutTerm("db", "host"))),
			[]string{"a1"}, TextAffinity},
		{"near one that does not run", neighbourhood(), appPod("web", "", near(aboutTerm("db", "zone"))), nil,
			TextAffinity},
		{"near itself, the first", neighbourhood(), appPod("web", "", near(aboutTerm("web", "zone"))),
			[]string{"a1", "a2", "b1"}, TextAffinity},
		{"near itself, the second", neighbourhood(appPod("web", "b1", nil)),
			appPod("web", "", near(aboutTerm("web", "zone"))), []string{"b1"}, TextAffinity},
		{"near, all terms by one pod", neighbourhood(appPod("db", "a1", nil), appPod("mq", "a1", nil)),
			appPod("web", "", near(aboutTerm("db", "zone"), aboutTerm("mq", "zone"))), nil, TextAffinity},
		{"near one in another namespace", neighbourhood(elsewhere(appPod("db", "a1", nil))),
			appPod("web", "", near(aboutTerm("db", "zone"))), nil, TextAffinity},
		{"near, namespace by name", neighbourhood(elsewhere(appPod("db", "a1", nil))),
			appPod("web", "", near(aboutTerm("db", "zone", byName))), []string{"a1", "a2"}, TextAffinity},
		{"near, namespace by label", neighbourhood(elsewhere(appPod("db", "a1", nil)), appPod("db", "b1", nil)),
			appPod("web", "", near(aboutTerm("db", "zone", teamY))), []string{"a1", "a2"}, TextAffinity},
		{"near, every namespace", neighbourhood(elsewhere(appPod("db", "a1", nil)), appPod("db", "b1", nil)),
			appPod("web", "", near(aboutTerm("db", "host", everywhere))), []string{"a1", "b1"}, TextAffinity},
		{"unreadable", neighbourhood(appPod("db", "a1", nil)),
			appPod("web", "", near(aboutTerm("db", "zone", unreadable))), nil, TextAffinity},
		{"away, by zone", neighbourhood(appPod("db", "a1", nil)), appPod("web", "", awayFrom(aboutTerm("db", "zone"))),
			[]string{"b1", "nowhere"}, TextAntiAffinity},
		{"away, either term", neighbourhood(appPod("db", "a1", nil), appPod("mq", "b1", nil)),
			appPod("web", "", awayFrom(aboutTerm("db", "host"), aboutTerm("mq", "host"))), []string{"a2", "nowhere"},
			TextAntiAffinity},
		{"one does not want it near", neighbourhood(appPod("db", "a1", awayFrom(aboutTerm("web", "zone")))),
			appPod("web", "", nil), []string{"b1", "nowhere"}, TextExisting},
		{"one does not want another near", neighbourhood(appPod("db", "a1", awayFrom(aboutTerm("mq", "zone")))),
			appPod("web", "", nil), all, ""},
		{"nobody asks for anything", neighbourhood(appPod("db", "a1", nil)), appPod("web", "", nil), all, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var fits []string
			for _, name := range all {
				reasons := of(PodAffinity, test.world, NewPod(test.pod), test.world.Node(name), Trial{})
				if len(reasons) == 0 {
					fits = append(fits, name)
				} else if len(reasons) > 1 || reasons[0].Text != test.reason ||
					reasons[0].Hopeless != (test.reason == TextAffinity) {
					t.Errorf("node %s fails for %+v, want %q", name, reasons, test.reason)
				}
			}
			if !slices.Equal(fits, test.fits) {
				t.Errorf("fits on %v, want %v", fits, test.fits)
			}
		})
	}
}

func TestARepellingPodThatLeftRepelsNoMore(t *testing.T) {
	repelling := appPod("db", "a1", awayFrom(aboutTerm("web", "zone")))
	c := neighbourhood(repelling)
	web := NewPod(appPod("web", "", nil))
	if reasons := of(PodAffinity, c, web, c.Node("a2"), Trial{Removed: []*Pod{NewPod(repelling)}}); len(reasons) == 0 {
		t.Error("a pod is thought to leave another node than the one that was asked about")
	}
	if reasons := of(PodAffinity, c, web, c.Node("a1"), Trial{Removed: []*Pod{NewPod(repelling)}}); len(reasons) > 0 {
		t.Errorf("a pod that would leave is still considered: %v", reasons)
	}
	c.DeletePod(repelling.UID)
	if reasons := of(PodAffinity, c, web, c.Node("a1"), Trial{}); len(reasons) > 0 {
		t.Errorf("a pod that left is still considered: %v", reasons)
	}
}

// TestAlike: what no node looks at makes no other sort of a pod.
func TestAlike(t *testing.T) {
	sort := func() *corev1.Pod {
		p := webPod("p", "")
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
		return p
	}
	tests := []struct {
		name  string
		edit  func(*corev1.Pod)
		alike bool
	}{
		{"another name", func(p *corev1.Pod) { p.Name, p.UID = "other", "other" }, true},
		{"other labels", func(p *corev1.Pod) { p.Labels = nil }, true},
		{"bears a taint for so long", func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = new(int64) }, true},
		{"bears all taints", func(p *corev1.Pod) { p.Spec.Tolerations[0].Key = "" }, false},
		{"a selector", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }, false},
		{"more important", func(p *corev1.Pod) { p.Spec.Priority = new(int32(1)) }, false},
		{"a port", func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			other := sort()
			test.edit(other)
			if got := NewPod(sort()).Alike(NewPod(other)); got != test.alike {
				t.Errorf("the pods are alike: %v, want %v", got, test.alike)
			}
		})
	}
}

// TestNodesAlone: whether a pod is about others is known without counting them, which costs a walk over all pods.
func TestNodesAlone(t *testing.T) {
	c := zones(1)
	near := []corev1.PodAffinityTerm{{
		TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
	edits := map[string]func(*corev1.Pod){
		"near": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{
				PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: near}}
		},
		"apart": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{
				PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: near}}
		},
		"spread": func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{byZone()}
		},
		"unwanted": func(p *corev1.Pod) { p.Labels = map[string]string{"app": "unwanted"} },
		"alone":    func(*corev1.Pod) {},
	}
	enemy := webPod("enemy", "a")
	edits["apart"](enemy)
	enemy.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{{
		TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "unwanted"}},
	}}
	c.SetPod(enemy)
	for name, edit := range edits {
		pod := webPod(name, "")
		edit(pod)
		if got := c.Ask(NewPod(pod)).NodesAlone(); got != (name == "alone") {
			t.Errorf("pod %s depends on nodes alone: %v", name, got)
		}
	}
	if len(c.groups) > 0 {
		t.Errorf("%d groups of pods were counted, and no node was asked", len(c.groups))
	}
}

// TestNothingIsKeptOfPodsThatLeft also looks at what is kept for many questions.
func TestNothingIsKeptOfPodsThatLeft(t *testing.T) {
	c := neighbourhood()
	for i := range 3 * maxGroups {
		app := fmt.Sprint(i)
		p := appPod(app, "a1", awayFrom(aboutTerm(app, "host")))
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(app), Controller: &yes}}
		if reasons := of(PodAffinity, c, NewPod(p), c.Node("a1"), Trial{}); len(reasons) > 0 {
			t.Fatalf("pod %d does not fit beside pods that do not concern it: %v", i, reasons)
		}
		c.SetPod(p)
		if reasons := of(PodAffinity, c, NewPod(p), c.Node("a1"), Trial{}); len(reasons) != 2 {
			t.Fatalf("pod %d fits beside another of its kind: %v", i, reasons)
		}
	}
	if len(c.groups) > maxGroups {
		t.Errorf("%d groups are kept, want at most %d", len(c.groups), maxGroups)
	}
	for uid := range c.pods {
		c.DeletePod(uid)
	}
	if len(c.repelling)+len(c.families)+len(c.pods) > 0 {
		t.Errorf("of pods that left are kept %d terms, %d families, %d pods", len(c.repelling), len(c.families),
			len(c.pods))
	}
	for id, g := range c.groups {
		if g.total != 0 || len(g.parts) != 0 {
			t.Errorf("group %q has %v", id, g.parts)
		}
	}
}

// TestPodsOfAFamilyShare their labels and terms, which are most of what is kept of a pod.
func TestPodsOfAFamilyShare(t *testing.T) {
	c := neighbourhood()
	yes := true
	for _, node := range []string{"a1", "a2", "b1"} {
		p := appPod("own", node, awayFrom(aboutTerm("own", "host")))
		p.OwnerReferences = []metav1.OwnerReference{{UID: "set", Controller: &yes}}
		c.SetPod(p)
	}
	first := c.pods["owna1"].pod
	for uid, other := range c.pods {
		if other.pod.Object != nil {
			t.Errorf("the object of pod %s is kept", uid)
		}
		if other.pod.repels[0] != first.repels[0] {
			t.Errorf("pod %s has terms of its own", uid)
		}
		first.Labels["mark"] = string(uid)
		if other.pod.Labels["mark"] != string(uid) {
			t.Errorf("pod %s has labels of its own", uid)
		}
	}
}
