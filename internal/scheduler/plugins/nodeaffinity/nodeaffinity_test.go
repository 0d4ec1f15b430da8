package nodeaffinity

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/scheduler/cache"
)

type (
	term        = corev1.NodeSelectorTerm
	requirement = corev1.NodeSelectorRequirement
)

func named(names ...string) requirement {
	return requirement{Key: "metadata.name", Operator: "In", Values: names}
}

func labelled(key, value string) requirement {
	return requirement{Key: key, Operator: "In", Values: []string{value}}
}

func requiring(selector map[string]string, terms ...term) *cache.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: selector}}
	if terms != nil {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	return cache.NewPod(pod)
}

func TestNodes(t *testing.T) {
	tests := []struct {
		name  string
		terms []term
		want  []string
		named bool
	}{
		{"no affinity", nil, nil, false},
		{"daemon pod", []term{{MatchFields: []requirement{named("a")}}}, []string{"a"}, true},
		{"alternatives", []term{{MatchFields: []requirement{named("a")}}, {MatchFields: []requirement{named("b")}}, {MatchFields: []requirement{named("a")}}}, []string{"a", "b"}, true},
		{"one alternative is open", []term{{MatchFields: []requirement{named("a")}}, {MatchExpressions: []requirement{labelled("x", "y")}}}, nil, false},
		{"name and label", []term{{MatchFields: []requirement{named("a")}, MatchExpressions: []requirement{labelled("x", "y")}}}, []string{"a"}, true},
		{"two names at once", []term{{MatchFields: []requirement{named("a"), named("b")}}}, nil, true},
		{"not that one", []term{{MatchFields: []requirement{{Key: "metadata.name", Operator: "NotIn", Values: []string{"a"}}}}}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, named := Nodes(requiring(nil, test.terms...))
			if !slices.Equal(got, test.want) || named != test.named {
				t.Errorf("Nodes() = %v, %v, want %v, %v", got, named, test.want, test.named)
			}
		})
	}
}

func TestFilter(t *testing.T) {
	node := &cache.Node{Name: "a", Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"disk": "ssd", "cpus": "8"}}}}
	expression := func(key string, operator corev1.NodeSelectorOperator, values ...string) term {
		return term{MatchExpressions: []requirement{{Key: key, Operator: operator, Values: values}}}
	}
	tests := []struct {
		name   string
		pod    *cache.Pod
		passes bool
	}{
		{"selector", requiring(map[string]string{"disk": "ssd"}), true},
		{"selector differs", requiring(map[string]string{"disk": "hdd"}), false},
		{"own name", requiring(nil, term{MatchFields: []requirement{named("a")}}), true},
		{"other name", requiring(nil, term{MatchFields: []requirement{named("b")}}), false},
		{"own name, selector differs", requiring(map[string]string{"disk": "hdd"}, term{MatchFields: []requirement{named("a")}}), false},
		{"not this name", requiring(nil, term{MatchFields: []requirement{{Key: "metadata.name", Operator: "NotIn", Values: []string{"a"}}}}), false},
		{"one of two alternatives", requiring(nil, expression("disk", "In", "hdd"), expression("disk", "In", "ssd")), true},
		{"exists", requiring(nil, expression("disk", "Exists")), true},
		{"does not exist", requiring(nil, expression("disk", "DoesNotExist")), false},
		{"greater", requiring(nil, expression("cpus", "Gt", "4")), true},
		{"empty term matches nothing", requiring(nil, term{}), false},
		{"unreadable", requiring(nil, expression("disk", "Near", "ssd")), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			verdict := Filter.Prepare(test.pod, nil)(node)
			if verdict.Passed() != test.passes {
				t.Errorf("verdict is %+v, want passed %v", verdict, test.passes)
			}
			if !test.passes && (verdict.Reasons[0] != Reason || !verdict.Hopeless) {
				t.Errorf("verdict is %+v, want the hopeless reason %q", verdict, Reason)
			}
		})
	}
	if Filter.Prepare(requiring(nil), nil) != nil {
		t.Error("a pod without selector is checked, want no check")
	}
}

func TestScorerAddsTheWeightsThatMatch(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 30, Preference: term{MatchExpressions: []requirement{labelled("disk", "ssd")}}},
			{Weight: 10, Preference: term{MatchExpressions: []requirement{labelled("zone", "z1")}}},
		},
	}}}}
	node := func(labels map[string]string) *cache.Node {
		return &cache.Node{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}}
	}
	got := Scorer.Prepare(cache.NewPod(pod), []*cache.Node{node(map[string]string{"disk": "ssd", "zone": "z1"}), node(map[string]string{"zone": "z1"}), node(nil)}, nil)
	if want := []int64{100, 25, 0}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := Scorer.Prepare(requiring(nil), nil, nil); got != nil {
		t.Errorf("scores of a pod without preferences are %v, want none", got)
	}
}
