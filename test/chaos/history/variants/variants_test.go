package variants

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
)

// story makes up a history of DaemonSet "agent" with node "n" of class s, whose variants give 200m there, and 400m on
// nodes of class l. They are stored as "x".
type story struct{ record history.Record }

func begin() *story {
	return (&story{}).put(agent()).put(node("s")).put(variant(molds.ByClass)).put(stored("x", molds.ByClass))
}

func (s *story) put(o metav1.Object) *story {
	s.record.Events = append(s.record.Events, history.Event{Revision: int64(len(s.record.Events) + 1), Object: o})
	return s
}

// later has so much happen elsewhere that nobody has missed what was before.
func (s *story) later() *story {
	for range lag + 1 {
		s.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", UID: "elsewhere"}})
	}
	return s
}

func agent() *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "agent"}}
	d.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	d.Spec.Template.Annotations = map[string]string{history.TemplateMark: "t1"}
	d.Spec.Template.Spec = looks(100)
	return d
}

func looks(milli int64) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": *resource.NewMilliQuantity(milli, resource.DecimalSI), "memory": resource.MustParse("64Mi")},
	}}}}
}

func node(class string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", Labels: map[string]string{molds.ClassLabel: class}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi")}
	return n
}

func variant(formula string) *v1alpha1.DaemonSetVariant {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: types.UID("v"), Generation: 1}}
	v.Spec.Resources = map[string]v1alpha1.VariantResources{"main": {Requests: map[corev1.ResourceName]string{"cpu": formula}}}
	v.Status.ObservedGeneration = 1
	return v
}

func stored(id, formula string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-variants-" + id, UID: types.UID("r" + id), Labels: map[string]string{molds.StoredLabel: id}},
		Data:       runtime.RawExtension{Raw: []byte(`{"variants":[{"name":"v","resources":{"main":{"requests":{"cpu":"` + formula + `"}}}}]}`)},
	}
}

// clash are two variants of one priority, stored as "c".
func clash() *appsv1.ControllerRevision {
	r := stored("c", molds.Fiftieth)
	text := strings.TrimSuffix(string(r.Data.Raw), "]}") + `,{"name":"w"}]}`
	r.Data.Raw = []byte(text)
	return r
}

// pod is one of a revision, with so much cpu.
func pod(of string, milli int64) *corev1.Pod {
	yes := true
	template, _, _ := strings.Cut(of, "_")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Annotations: map[string]string{history.TemplateMark: "t1"},
			Labels:          map[string]string{"everynode.io/revision": of, appsv1.ControllerRevisionHashLabelKey: template},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: &yes}}},
		Spec: func() corev1.PodSpec { s := looks(milli); s.NodeName = "n"; return s }(),
	}
}

func rollout(stable, target, step string) *v1alpha1.DaemonSetRollout {
	r := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "rollout", Labels: map[string]string{history.OwnerLabel: "agent"}}}
	r.Status.StableRevision, r.Status.TargetRevision, r.Status.Step = stable, target, step
	r.Status.Steps = []v1alpha1.StepStatus{{Name: "canary"}, {Name: "rest"}}
	return r
}

func canary() *v1alpha1.RolloutPolicy {
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "policy"}}
	p.Spec.Waves = []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{molds.ClassLabel: "l"}}}}
	return p
}

// another is a variant that takes the place of the first, which is elsewhere's then.
func another() *v1alpha1.DaemonSetVariant {
	v := variant(molds.Fiftieth)
	v.Name, v.UID = "w", "w"
	return v
}

func elsewhere() *v1alpha1.DaemonSetVariant {
	v := variant(molds.ByClass)
	v.Spec.DaemonSets, v.Generation = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "elsewhere"}}, 2
	return v
}

func TestVariants(t *testing.T) {
	policed := func() *story { return begin().put(canary()) }
	for name, c := range map[string]struct {
		of   *story
		want string
	}{
		"a pod as its variants say":               {begin().put(pod("t_x", 200)), ""},
		"a pod of other amounts":                  {begin().put(pod("t_x", 400)), Unlike},
		"a pod of the template alone":             {begin().put(pod("t_x", 100)), Unlike},
		"a pod without variants":                  {begin().put(pod("t", 100)), ""},
		"a pod without variants, with amounts":    {begin().put(pod("t", 200)), Unlike},
		"a pod by what was not stored":            {begin().put(pod("t_y", 200)), Unknown},
		"a pod by what is stored after it":        {begin().put(pod("t_y", 200)).put(stored("y", molds.ByClass)), Unknown},
		"a pod where none can be made":            {begin().put(stored("y", molds.NoSuch)).put(pod("t_y", 100)), Unlike},
		"a pod as its node was a moment ago":      {begin().put(node("l")).put(pod("t_x", 200)), ""},
		"a pod as its node was long ago":          {begin().put(node("l")).later().put(pod("t_x", 200)), Unlike},
		"a pod as its node is":                    {begin().put(node("l")).later().put(pod("t_x", 400)), ""},
		"amounts of the node's class":             {begin().put(pod("t", 100)).put(pod("t", 200)), ""},
		"amounts of another class":                {begin().put(pod("t", 100)).put(pod("t", 400)), Given},
		"amounts of another class, which it was":  {begin().put(node("l")).put(pod("t_x", 400)).put(node("s")).later().put(pod("t_x", 200)), ""},
		"amounts of variants that nobody has":     {begin().put(stored("y", molds.Hundredth)).put(pod("t_x", 200)).later().put(pod("t_x", 100)), Given},
		"amounts that it goes back to":            {begin().put(stored("y", molds.Hundredth)).put(pod("t_x", 200)).put(rollout("t_y", "t_x", "rest")).put(pod("t_x", 100)), ""},
		"amounts by one in conflict":              {begin().put(clash()).put(pod("t", 100)).put(pod("t", 210)), Given},
		"a new pod by the first in conflict":      {begin().put(clash()).put(pod("t_c", 210)), ""},
		"amounts of half of an edit":              {begin().put(pod("t_x", 200)).later().put(another()).put(elsewhere()).put(pod("t_x", 100)), ""},
		"amounts of half of an edit of long ago":  {begin().put(pod("t_x", 200)).put(another()).put(elsewhere()).later().put(pod("t_x", 100)), Given},
		"amounts of no variant":                   {begin().put(pod("t_x", 200)).put(pod("t_x", 300)), Given},
		"the target in the node's step":           {policed().put(rollout("t", "t_x", "rest")).later().put(pod("t_x", 200)), ""},
		"the target before the node's step":       {policed().put(rollout("t", "t_x", "canary")).later().put(pod("t_x", 200)), Begun},
		"the stable one before the node's step":   {policed().put(rollout("t_x", "t", "canary")).later().put(pod("t_x", 200)), ""},
		"the step begins then":                    {policed().put(rollout("t", "t_x", "canary")).later().put(pod("t_x", 200)).put(rollout("t", "t_x", "rest")), ""},
		"the target without a policy":             {begin().put(rollout("t", "t_x", "canary")).later().put(pod("t_x", 200)), ""},
		"a resize to the target before its step":  {policed().put(pod("t", 100)).put(rollout("t", "t_x", "canary")).later().put(pod("t", 200)).put(pod("t_x", 200)), Begun},
		"a resize to the target in the step":      {policed().put(pod("t", 100)).put(rollout("t", "t_x", "rest")).later().put(pod("t", 200)).put(pod("t_x", 200)), ""},
		"without variants nothing is judged":      {(&story{}).put(agent()).put(node("s")).put(pod("t_y", 300)), ""},
		"a pod of another owner is not the judge": {begin().put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "q"}}), ""},
	} {
		var rules []string
		for _, v := range Check(c.of.record) {
			rules = append(rules, v.Rule)
		}
		if got := strings.Join(rules, ", "); got != c.want {
			t.Errorf("%s: found %q, want %q (%v)", name, got, c.want, Check(c.of.record))
		}
	}
}

func TestResizesAreCounted(t *testing.T) {
	s := begin().put(pod("t_x", 200)).put(pod("t_x", 400)).put(pod("t_x", 400)).put(pod("t_x", 200))
	if n := Resized(s.record); n != 2 {
		t.Errorf("counted %d resizes, want 2", n)
	}
	never := pod("t_x", 400)
	never.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: "True", Reason: corev1.PodReasonInfeasible}}
	s = begin().put(pod("t_x", 200)).put(never).put(never).put(pod("t_x", 200)).put(never)
	if n := Refused(s.record); n != 2 {
		t.Errorf("counted %d that cannot be had, want 2", n)
	}
}

func TestUnsettled(t *testing.T) {
	say := func(kind string, status metav1.ConditionStatus) func(*history.State) {
		return func(s *history.State) {
			s.Variants[0].Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Message: "so"}}
		}
	}
	for name, c := range map[string]struct {
		change func(*history.State)
		want   string
	}{
		"all is well":                     {func(*history.State) {}, ""},
		"a pod of the template":           {func(s *history.State) { s.Pods[0] = pod("t_x", 100) }, "and is to have cpu 200m"},
		"a pod of another class":          {func(s *history.State) { s.Nodes[0] = node("l") }, "and is to have cpu 400m"},
		"OnDelete":                        {func(s *history.State) { s.Nodes[0] = node("l"); s.Sets[0].Spec.UpdateStrategy.Type = "OnDelete" }, ""},
		"the variant is gone, the pod is": {func(s *history.State) { s.Variants = nil }, "and is to have cpu 100m"},
		"the variant fails":               {func(s *history.State) { s.Variants[0] = variant(molds.NoSuch) }, "keeps its agent"},
		"the node has not given it": {func(s *history.State) {
			s.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: "True"}}
		}, "does not hold"},
		"a status of before": {func(s *history.State) { s.Variants[0].Status.ObservedGeneration = 0 }, "what is so now"},
		"it does not apply":  {say(v1alpha1.VariantApplies, "False"), "does not apply: so"},
		"it is in conflict":  {say(v1alpha1.VariantConflict, "True"), "is in conflict"},
	} {
		s := history.State{
			Sets: []*appsv1.DaemonSet{agent()}, Nodes: []*corev1.Node{node("s")}, Pods: []*corev1.Pod{pod("t_x", 200)},
			Variants: []*v1alpha1.DaemonSetVariant{variant(molds.ByClass)},
		}
		c.change(&s)
		got := strings.Join(Unsettled(s), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
