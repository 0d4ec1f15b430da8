package fit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/fit/hostport"
)

// truth is a cluster as its objects say it, and answers by counting everything from nothing.
type truth struct {
	nodes      map[string]*corev1.Node
	pods       map[types.UID]*corev1.Pod // all have a node
	namespaces map[string]map[string]string
}

// with is the truth if some pods came to a node and others left it.
func (w truth) with(node string, added, removed []*corev1.Pod) truth {
	w.pods = maps.Clone(w.pods)
	for _, p := range removed {
		if there := w.pods[p.UID]; there != nil && there.Spec.NodeName == node {
			delete(w.pods, p.UID)
		}
	}
	for _, p := range added {
		if w.pods[p.UID] == nil {
			p = p.DeepCopy()
			p.Spec.NodeName = node
			w.pods[p.UID] = p
		}
	}
	return w
}

// reasons are the texts of all reasons why the pod does not fit.
func (w truth) reasons(pod *corev1.Pod, name string) []string {
	node := w.nodes[name]
	var out []string
	say := func(fails bool, text string) {
		if fails {
			out = append(out, text)
		}
	}
	say(node.Spec.Unschedulable && !w.tolerates(pod,
		corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: "NoSchedule"}), TextUnschedulable)
	say(!w.toleratesAll(pod, node), TextTaints)
	say(!w.selects(pod, node), TextNodeAffinity)
	say(w.portTaken(pod, name), TextPorts)
	out = append(out, w.room(pod, name)...)
	say(w.diskTaken(pod, name), TextDisks)
	out = append(out, w.uneven(pod, node)...)
	affinity := pod.Spec.Affinity
	if affinity != nil && affinity.PodAffinity != nil {
		say(!w.attracted(pod, affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, node), TextAffinity)
	}
	say(w.anyNear(pod, node, func(other *corev1.Pod) []corev1.PodAffinityTerm { return repelsOf(pod) }, true),
		TextAntiAffinity)
	say(w.anyNear(pod, node, repelsOf, false), TextExisting)
	return out
}

func repelsOf(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func (w truth) tolerates(pod *corev1.Pod, taint corev1.Taint) bool {
	for _, t := range pod.Spec.Tolerations {
		if t.Key == taint.Key && (t.Effect == "" || t.Effect == taint.Effect) {
			return true
		}
	}
	return false
}

func (w truth) toleratesAll(pod *corev1.Pod, node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !w.tolerates(pod, taint) {
			return false
		}
	}
	return true
}

func (w truth) selects(pod *corev1.Pod, node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return matches && err == nil
}

func (w truth) on(name string) (on []*corev1.Pod) {
	for _, p := range w.pods {
		if p.Spec.NodeName == name {
			on = append(on, p)
		}
	}
	slices.SortFunc(on, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return on
}

func (w truth) portTaken(pod *corev1.Pod, name string) bool {
	for _, other := range w.on(name) {
		for _, a := range hostport.Of(&other.Spec) {
			for _, b := range hostport.Of(&pod.Spec) {
				if a.Port == b.Port && a.Protocol == b.Protocol &&
					(a.IP == b.IP || a.IP == "0.0.0.0" || b.IP == "0.0.0.0") {
					return true
				}
			}
		}
	}
	return false
}

func (w truth) diskTaken(pod *corev1.Pod, name string) bool {
	for _, other := range w.on(name) {
		for _, a := range other.Spec.Volumes {
			for _, b := range pod.Spec.Volumes {
				if a.ISCSI != nil && b.ISCSI != nil && a.ISCSI.IQN == b.ISCSI.IQN &&
					!(a.ISCSI.ReadOnly && b.ISCSI.ReadOnly) {
					return true
				}
			}
		}
	}
	return false
}

func (w truth) room(pod *corev1.Pod, name string) (out []string) {
	allocatable := w.nodes[name].Status.Allocatable
	if int64(len(w.on(name)))+1 > allocatable.Pods().Value() {
		out = append(out, TextTooManyPods)
	}
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "example.com/gpu"} {
		wanted := pod.Spec.Containers[0].Resources.Requests[resource]
		free := allocatable[resource]
		for _, other := range w.on(name) {
			free.Sub(other.Spec.Containers[0].Resources.Requests[resource])
		}
		if !wanted.IsZero() && wanted.Cmp(free) > 0 {
			out = append(out, "Insufficient "+string(resource))
		}
	}
	return out
}

// uneven follows the definition: the skew of a part is its number of pods less the smallest of all parts that count.
func (w truth) uneven(pod *corev1.Pod, node *corev1.Node) []string {
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		value, ok := node.Labels[c.TopologyKey]
		if !ok {
			return []string{TextMissingLabel}
		}
		selector, _ := metav1.LabelSelectorAsSelector(c.LabelSelector)
		counts := map[string]int{}
		for name, other := range w.nodes {
			if !w.spreadOver(pod, &c, other) {
				continue
			}
			counts[other.Labels[c.TopologyKey]] += 0
			for _, p := range w.on(name) {
				if p.Namespace == pod.Namespace && p.DeletionTimestamp == nil &&
					selector.Matches(labels.Set(p.Labels)) {
					counts[other.Labels[c.TopologyKey]]++
				}
			}
		}
		lowest := 0
		if len(counts) > 0 && (c.MinDomains == nil || len(counts) >= int(*c.MinDomains)) {
			lowest = slices.Min(slices.Collect(maps.Values(counts)))
		}
		skew := counts[value] - lowest
		if selector.Matches(labels.Set(pod.Labels)) {
			skew++
		}
		if skew > int(c.MaxSkew) {
			return []string{TextSpread}
		}
	}
	return nil
}

func (w truth) spreadOver(pod *corev1.Pod, c *corev1.TopologySpreadConstraint, node *corev1.Node) bool {
	for _, other := range pod.Spec.TopologySpreadConstraints {
		if _, ok := node.Labels[other.TopologyKey]; other.WhenUnsatisfiable == c.WhenUnsatisfiable && !ok {
			return false
		}
	}
	if (c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == "Honor") && !w.selects(pod, node) {
		return false
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy != "Honor" || w.toleratesAll(pod, node)
}

// about reports whether a term of one pod is about another pod.
func (w truth) about(term *corev1.PodAffinityTerm, owner, other *corev1.Pod) bool {
	selector, _ := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if !selector.Matches(labels.Set(other.Labels)) {
		return false
	}
	if len(term.Namespaces) == 0 && term.NamespaceSelector == nil {
		return owner.Namespace == other.Namespace
	}
	byLabels, _ := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
	return slices.Contains(term.Namespaces, other.Namespace) ||
		term.NamespaceSelector != nil && byLabels.Matches(labels.Set(w.namespaces[other.Namespace]))
}

// together reports whether a pod runs in the node's part by a label.
func (w truth) together(p *corev1.Pod, node *corev1.Node, key string) bool {
	there := w.nodes[p.Spec.NodeName]
	if there == nil {
		return false
	}
	a, ok := there.Labels[key]
	b, also := node.Labels[key]
	return ok && also && a == b
}

func (w truth) attracted(pod *corev1.Pod, terms []corev1.PodAffinityTerm, node *corev1.Node) bool {
	aboutAll := func(p *corev1.Pod) bool {
		for i := range terms {
			if !w.about(&terms[i], pod, p) {
				return false
			}
		}
		return true
	}
	near, anywhere := 0, false
	for i := range terms {
		found := false
		for _, p := range w.pods {
			if !aboutAll(p) || w.nodes[p.Spec.NodeName] == nil {
				continue
			}
			_, inPart := w.nodes[p.Spec.NodeName].Labels[terms[i].TopologyKey]
			anywhere = anywhere || inPart
			found = found || w.together(p, node, terms[i].TopologyKey)
		}
		if _, inPart := node.Labels[terms[i].TopologyKey]; !inPart {
			return false
		}
		if found {
			near++
		}
	}
	return near == len(terms) || !anywhere && aboutAll(pod)
}

// anyNear reports whether some pod runs near the node about which a term of the asked pod is, or whose term is about
// the asked pod.
func (w truth) anyNear(pod *corev1.Pod, node *corev1.Node, terms func(*corev1.Pod) []corev1.PodAffinityTerm,
	own bool) bool {
	for _, p := range w.pods {
		for _, term := range terms(p) {
			owner, other := p, pod
			if own {
				owner, other = pod, p
			}
			if w.about(&term, owner, other) && w.together(p, node, term.TopologyKey) {
				return true
			}
		}
	}
	return false
}

// TestAnswersEqualTheTruth tells random events to a cluster and asks it, after each, about a random pod on every node,
// as it is and after a random trial.
func TestAnswersEqualTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCluster()
		w := truth{nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{},
			namespaces: map[string]map[string]string{}}
		next := 0
		newPod := func(t *rapid.T) *corev1.Pod {
			next++
			return drawNeighbour(t, fmt.Sprintf("p%d", next))
		}
		existing := func(t *rapid.T) *corev1.Pod {
			if len(w.pods) == 0 {
				t.Skip("no pod")
			}
			return w.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(w.pods))).Draw(t, "pod")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"node": func(t *rapid.T) {
				name := nodeNames.Draw(t, "node")
				w.nodes[name] = drawPlace(t, name)
				c.SetNode(w.nodes[name])
			},
			"delete node": func(t *rapid.T) {
				name := nodeNames.Draw(t, "node")
				delete(w.nodes, name)
				c.DeleteNode(name)
			},
			"namespace": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace")
				w.namespaces[name] = map[string]string{"team": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "team")}
				c.SetNamespace(name, w.namespaces[name])
			},
			"pod": func(t *rapid.T) {
				p := newPod(t)
				p.Spec.NodeName = nodeNames.Draw(t, "node")
				w.pods[p.UID] = p
				if rapid.Bool().Draw(t, "assumed") {
					c.Assume(NewPod(p), p.Spec.NodeName)
				} else {
					c.SetPod(p)
				}
			},
			"change": func(t *rapid.T) {
				old := existing(t)
				p := drawNeighbour(t, old.Name)
				p.Generation, p.Spec.NodeName = old.Generation+1, old.Spec.NodeName
				w.pods[p.UID] = p
				c.SetPod(p)
			},
			"new label, new status, or leaving": func(t *rapid.T) {
				p := existing(t).DeepCopy()
				switch rapid.IntRange(0, 2).Draw(t, "what") {
				case 0:
					p.Labels = drawLabels(t)
				case 1:
					p.Status.Message = "something"
				default:
					p.DeletionTimestamp = &metav1.Time{}
				}
				w.pods[p.UID] = p
				c.SetPod(p)
			},
			"delete pod": func(t *rapid.T) {
				p := existing(t)
				delete(w.pods, p.UID)
				c.DeletePod(p.UID)
			},
			"": func(t *rapid.T) {
				asked := newPod(t)
				other := newPod(t)
				question := c.Ask(NewPod(asked))
				for name := range w.nodes {
					compareAnswers(t, question, c.Node(name), Trial{}, w.reasons(asked, name))
					removed := []*corev1.Pod{other}
					trial := Trial{Added: []*Pod{NewPod(other)}, Removed: []*Pod{NewPod(other)}}
					for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
						if rapid.Bool().Draw(t, "leaves") {
							removed, trial.Removed = append(removed, w.pods[uid]), append(trial.Removed,
								NewPod(w.pods[uid]))
						}
					}
					added := []*corev1.Pod{other}
					if on := w.on(name); len(on) > 0 && rapid.Bool().Draw(t, "comes again") {
						added, trial.Added = append(added, on[0]), append(trial.Added, NewPod(on[0]))
					}
					compareAnswers(t, question, c.Node(name), trial, w.with(name, added, removed).reasons(asked, name))
				}
			},
		})
	})
}

func compareAnswers(t *rapid.T, question *Question, node *Node, trial Trial, want []string) {
	t.Helper()
	var got []string
	all := question.All(node, trial)
	for _, r := range all {
		got = append(got, r.Text)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("node %s fails for\n%q, want\n%q", node.Name, got, want)
	}
	first := question.First(node, trial)
	if len(first) == 0 != (len(all) == 0) || len(first) > 0 && !slices.Equal(first, all[:len(first)]) {
		t.Fatalf("the first reasons of node %s are %v, of all %v", node.Name, first, all)
	}
}

func drawLabels(t *rapid.T) map[string]string {
	return map[string]string{"app": rapid.SampledFrom([]string{"web", "db"}).Draw(t, "app")}
}

func drawPlace(t *rapid.T, name string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			"cpu": resource.MustParse("4"), "memory": resource.MustParse("4"), "pods": resource.MustParse("5"),
		}},
	}
	if rapid.IntRange(0, 4).Draw(t, "in a zone") > 0 {
		n.Labels["zone"] = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "zone")
	}
	if rapid.IntRange(0, 4).Draw(t, "has a host name") > 0 {
		n.Labels["host"] = name
	}
	if rapid.IntRange(0, 3).Draw(t, "gpu") == 0 {
		n.Status.Allocatable["example.com/gpu"] = resource.MustParse("1")
	}
	n.Spec.Unschedulable = rapid.IntRange(0, 5).Draw(t, "cordon") == 0
	if rapid.IntRange(0, 4).Draw(t, "tainted") == 0 {
		n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: rapid.SampledFrom([]corev1.TaintEffect{"NoSchedule",
			"NoExecute", "PreferNoSchedule"}).Draw(t, "effect")}}
	}
	return n
}

func drawNeighbour(t *rapid.T, name string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Generation: 1, Labels: drawLabels(t),
			Namespace: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}}},
	}
	some := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what) == 0 }
	container := &p.Spec.Containers[0]
	for _, name := range []corev1.ResourceName{"cpu", "memory", "example.com/gpu"} {
		if some(string(name)) {
			container.Resources.Requests[name] = *resource.NewQuantity(rapid.Int64Range(0, 5).Draw(t, "amount"),
				resource.DecimalSI)
		}
	}
	if some("port") {
		container.Ports = []corev1.ContainerPort{{HostPort: rapid.Int32Range(1, 2).Draw(t, "number"),
			HostIP: rapid.SampledFrom([]string{"", "10.0.0.1", "10.0.0.2"}).Draw(t, "ip")}}
	}
	if some("disk") {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{IQN: "q",
			ReadOnly: rapid.Bool().Draw(t, "read only")}}}}
	}
	if some("owned") {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{UID: "set", Controller: &yes}}
	}
	if some("tolerates") {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: "Exists"},
			{Key: corev1.TaintNodeUnschedulable, Operator: "Exists"}}
	}
	if some("selects") {
		p.Spec.NodeSelector = map[string]string{"zone": "1"}
	}
	p.Spec.Affinity = drawAffinity(t, some)
	for range rapid.IntRange(0, 2).Draw(t, "constraints") {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, drawConstraint(t))
	}
	return p
}

func drawAffinity(t *rapid.T, some func(string) bool) *corev1.Affinity {
	a := &corev1.Affinity{}
	if some("names its nodes") {
		names := rapid.SliceOfN(nodeNames, 1, 2).Draw(t, "names")
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: names[:1]}}},
			{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In",
				Values: names[len(names)-1:]}}},
		}}}
	}
	if some("attracted") {
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: drawTerms(t)}
	}
	if some("repels") {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: drawTerms(t)}
	}
	return a
}

func drawTerms(t *rapid.T) (terms []corev1.PodAffinityTerm) {
	for range rapid.IntRange(1, 2).Draw(t, "terms") {
		term := corev1.PodAffinityTerm{TopologyKey: rapid.SampledFrom([]string{"zone", "host"}).Draw(t, "key")}
		switch rapid.IntRange(0, 5).Draw(t, "selector") {
		case 0: // none, which selects nothing
		case 1:
			term.LabelSelector = &metav1.LabelSelector{}
		default:
			term.LabelSelector = &metav1.LabelSelector{MatchLabels: drawLabels(t)}
		}
		switch rapid.IntRange(0, 4).Draw(t, "namespaces") {
		case 0:
			term.Namespaces = []string{"y", "x"}
		case 1:
			term.NamespaceSelector = &metav1.LabelSelector{}
		case 2:
			term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		}
		terms = append(terms, term)
	}
	return terms
}

func drawConstraint(t *rapid.T) corev1.TopologySpreadConstraint {
	policy := rapid.SampledFrom([]corev1.NodeInclusionPolicy{"", "Honor", "Ignore"})
	c := corev1.TopologySpreadConstraint{
		MaxSkew:     rapid.Int32Range(1, 2).Draw(t, "skew"),
		TopologyKey: rapid.SampledFrom([]string{"zone", "host"}).Draw(t, "key"),
		WhenUnsatisfiable: rapid.SampledFrom([]corev1.UnsatisfiableConstraintAction{"DoNotSchedule", "DoNotSchedule",
			"ScheduleAnyway"}).Draw(t, "when"),
		LabelSelector: &metav1.LabelSelector{MatchLabels: drawLabels(t)},
	}
	if p := policy.Draw(t, "affinity policy"); p != "" {
		c.NodeAffinityPolicy = &p
	}
	if p := policy.Draw(t, "taints policy"); p != "" {
		c.NodeTaintsPolicy = &p
	}
	if rapid.IntRange(0, 3).Draw(t, "has a number of domains") == 0 {
		domains := rapid.Int32Range(1, 3).Draw(t, "domains")
		c.MinDomains = &domains
	}
	return c
}
