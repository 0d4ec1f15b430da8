package placement

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func nodeWith(labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	n.Name, n.Labels = "n1", labels
	return n
}

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}

func requirement(key string, op corev1.NodeSelectorOperator, values ...string) []corev1.NodeSelectorRequirement {
	return []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}
}

// unready is a node that says that it is not ready and has no room.
func unready(n *corev1.Node) *corev1.Node {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	return n
}

func TestJudge(t *testing.T) {
	taint := func(effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: "gpu", Value: "yes", Effect: effect}
	}
	ssd := map[string]string{"disk": "ssd", "cores": "8"}
	tests := []struct {
		name string
		spec corev1.PodSpec
		node *corev1.Node
		want Eligibility
	}{
		{"no rules", corev1.PodSpec{}, nodeWith(nil), ShouldRun},
		{"its own name", corev1.PodSpec{NodeName: "n1"}, nodeWith(nil), ShouldRun},
		{"another name", corev1.PodSpec{NodeName: "n2"}, nodeWith(nil), ShouldNotRun},
		{"selector matches", corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, nodeWith(ssd), ShouldRun},
		{"selector does not", corev1.PodSpec{NodeSelector: map[string]string{"disk": "hdd"}}, nodeWith(ssd), ShouldNotRun},
		{"affinity: one of two terms matches", corev1.PodSpec{Affinity: required(
			corev1.NodeSelectorTerm{MatchExpressions: requirement("disk", corev1.NodeSelectorOpIn, "hdd")},
			corev1.NodeSelectorTerm{MatchExpressions: requirement("cores", corev1.NodeSelectorOpGt, "4")})}, nodeWith(ssd), ShouldRun},
		{"affinity: none matches", corev1.PodSpec{Affinity: required(
			corev1.NodeSelectorTerm{MatchExpressions: requirement("disk", corev1.NodeSelectorOpNotIn, "ssd")})}, nodeWith(ssd), ShouldNotRun},
		{"affinity: the name matches", corev1.PodSpec{Affinity: required(
			corev1.NodeSelectorTerm{MatchFields: requirement("metadata.name", corev1.NodeSelectorOpIn, "n1")})}, nodeWith(nil), ShouldRun},
		{"affinity: cannot be read", corev1.PodSpec{Affinity: required(
			corev1.NodeSelectorTerm{MatchExpressions: requirement("cores", corev1.NodeSelectorOpGt, "many")})}, nodeWith(ssd), ShouldNotRun},
		{"selector and affinity must both match", corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}, Affinity: required(
			corev1.NodeSelectorTerm{MatchFields: requirement("metadata.name", corev1.NodeSelectorOpIn, "n2")})}, nodeWith(ssd), ShouldNotRun},
		{"a preference is no rule", corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1,
				Preference: corev1.NodeSelectorTerm{MatchExpressions: requirement("disk", corev1.NodeSelectorOpIn, "hdd")}}}}}}, nodeWith(ssd), ShouldRun},
		{"other pods are no rule", corev1.PodSpec{
			Affinity:                  &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}},
		}, nodeWith(nil), ShouldRun},
		{"readiness and room are no rule", corev1.PodSpec{Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}}}}}, unready(nodeWith(nil)), ShouldRun},
		{"PreferNoSchedule is no rule", corev1.PodSpec{}, nodeWith(nil, taint(corev1.TaintEffectPreferNoSchedule)), ShouldRun},
		{"NoSchedule", corev1.PodSpec{}, nodeWith(nil, taint(corev1.TaintEffectNoSchedule)), ShouldContinueRunning},
		{"NoExecute", corev1.PodSpec{}, nodeWith(nil, taint(corev1.TaintEffectNoExecute)), ShouldNotRun},
		{"NoSchedule, then NoExecute", corev1.PodSpec{}, nodeWith(nil, taint(corev1.TaintEffectNoSchedule), taint(corev1.TaintEffectNoExecute)), ShouldNotRun},
		{"tolerated by value", corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "gpu", Value: "yes"}}},
			nodeWith(nil, taint(corev1.TaintEffectNoExecute)), ShouldRun},
		{"tolerated for another value", corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "no"}}},
			nodeWith(nil, taint(corev1.TaintEffectNoExecute)), ShouldNotRun},
		{"tolerated for a time", corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64)}}},
			nodeWith(nil, taint(corev1.TaintEffectNoExecute)), ShouldRun},
		{"everything tolerated", corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
			nodeWith(nil, taint(corev1.TaintEffectNoExecute)), ShouldRun},
		{"cordoned", corev1.PodSpec{}, nodeWith(nil, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}), ShouldRun},
		{"not ready, for starting", corev1.PodSpec{}, nodeWith(nil, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}), ShouldContinueRunning},
		{"not ready, for running", corev1.PodSpec{}, nodeWith(nil, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}), ShouldRun},
		{"no network", corev1.PodSpec{}, nodeWith(nil, corev1.Taint{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule}), ShouldContinueRunning},
		{"no network, but the host's", corev1.PodSpec{HostNetwork: true},
			nodeWith(nil, corev1.Taint{Key: corev1.TaintNodeNetworkUnavailable, Effect: corev1.TaintEffectNoSchedule}), ShouldRun},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, why := Compile(&tc.spec).Judge(tc.node)
			if got != tc.want {
				t.Errorf("node %s (%s), want it %s", got, why, tc.want)
			}
			if (why == "") != (got == ShouldRun) {
				t.Errorf("node %s, and the reason is %q", got, why)
			}
		})
	}
}

func TestTolerationsReplaceTheTemplatesOwn(t *testing.T) {
	seconds := int64(30)
	spec := corev1.PodSpec{Tolerations: []corev1.Toleration{
		{Key: "mine", Operator: corev1.TolerationOpExists},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
	}}
	var keys []string
	for _, o := range Tolerations(&spec) {
		keys = append(keys, o.Key+":"+string(o.Effect))
		if o.TolerationSeconds != nil {
			t.Errorf("%s is tolerated for %d seconds only", o.Key, *o.TolerationSeconds)
		}
	}
	want := []string{"mine:", "node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/not-ready:NoExecute",
		"node.kubernetes.io/disk-pressure:NoSchedule", "node.kubernetes.io/memory-pressure:NoSchedule",
		"node.kubernetes.io/pid-pressure:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"}
	if !reflect.DeepEqual(keys, want) {
		t.Errorf("tolerations are\n%q, want\n%q", keys, want)
	}
	if spec.Tolerations[1].TolerationSeconds == nil {
		t.Error("the template itself was changed")
	}
}

func TestPinToNodeKeepsTheRest(t *testing.T) {
	a := required(corev1.NodeSelectorTerm{MatchExpressions: requirement("disk", corev1.NodeSelectorOpIn, "ssd")})
	a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 7}}
	got := PinToNode(a, "n7")
	terms := got.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchExpressions) != 0 || !reflect.DeepEqual(terms[0].MatchFields, requirement("metadata.name", corev1.NodeSelectorOpIn, "n7")) {
		t.Errorf("required terms are %v", terms)
	}
	if got.PodAntiAffinity == nil || len(got.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 {
		t.Errorf("other affinities were lost: %v", got)
	}
	if len(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions) != 1 {
		t.Error("the template itself was changed")
	}
}

func TestRulesAsJSON(t *testing.T) {
	spec := corev1.PodSpec{NodeName: "n", NodeSelector: map[string]string{"a": "b"}, HostNetwork: true,
		Affinity:    required(corev1.NodeSelectorTerm{MatchExpressions: requirement("disk", corev1.NodeSelectorOpExists)}),
		Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}}
	want := Compile(&spec)
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Rules
	if err := json.Unmarshal(raw, &got); err != nil || got.key != want.key {
		t.Errorf("got %s, %v, want %s", got.key, err, want.key)
	}
	if err := json.Unmarshal([]byte(`[1]`), &got); err == nil {
		t.Error("a number is taken for a node's name")
	}
}

// Where a DaemonSet is listed is a part of its rules, is read back from their JSON, and adds nothing where it is not.
func TestRulesOfListedDaemonSets(t *testing.T) {
	plain := Compile(&corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}})
	listed := plain.Starting([]nodestartup.Place{{Startup: "s", Group: 2}})
	if plain.Starting(nil) != plain || plain.Same(listed) {
		t.Error("the rules do not tell who is listed from who is not")
	}
	raw, err := json.Marshal(listed)
	if err != nil {
		t.Fatal(err)
	}
	var read Rules
	if err := json.Unmarshal(raw, &read); err != nil || !read.Same(listed) {
		t.Errorf("%s is read as %s, %v", raw, read.key, err)
	}
	ssd := map[string]string{"disk": "ssd"}
	gate := func(place nodestartup.Place, kind v1alpha1.StartupGate) corev1.Taint {
		return *nodestartup.Gate(place, kind, time.Unix(0, 0))
	}
	other := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoExecute}
	for name, c := range map[string]struct {
		node *corev1.Node
		want Eligibility
	}{
		"its group is not reached": {nodeWith(ssd, gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin)), ShouldContinueRunning},
		"nor with an open gate":    {nodeWith(ssd, gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateNone)), ShouldContinueRunning},
		"its group is reached":     {nodeWith(ssd, gate(nodestartup.Place{Startup: "s", Group: 2}, v1alpha1.GateJoin)), ShouldRun},
		"it is passed":             {nodeWith(ssd, gate(nodestartup.Place{Startup: "s", Group: 3}, v1alpha1.GateJoin)), ShouldRun},
		"another startup":          {nodeWith(ssd, gate(nodestartup.Place{Startup: "t", Group: 1}, v1alpha1.GateJoin)), ShouldRun},
		"it is for others":         {nodeWith(nil, gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin)), ShouldNotRun},
		"all are thrown out":       {nodeWith(ssd, gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin), other), ShouldNotRun},
	} {
		if got, why := listed.Judge(c.node); got != c.want {
			t.Errorf("%s: it %s (%s), want it %s", name, got, why, c.want)
		}
	}
}
