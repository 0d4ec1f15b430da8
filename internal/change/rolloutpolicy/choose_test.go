package rolloutpolicy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestTheOldestPolicyCounts(t *testing.T) {
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	make := func(namespace, name string, age int, selector *metav1.LabelSelector) *v1alpha1.RolloutPolicy {
		return &v1alpha1.RolloutPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(begin.Add(-time.Duration(age) * time.Hour))},
			Spec:       v1alpha1.RolloutPolicySpec{Selector: selector},
		}
	}
	agents := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "agent"}}
	unreadable := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like"}}}
	policies := []*v1alpha1.RolloutPolicy{
		make("other", "oldest", 9, nil), make("kube-system", "broken", 8, unreadable), make("kube-system", "young", 1, nil),
		make("kube-system", "b-agents", 5, agents), make("kube-system", "a-agents", 5, agents), make("kube-system", "all", 3, &metav1.LabelSelector{}),
	}
	for want, c := range map[string]struct {
		namespace string
		labels    map[string]string
	}{
		"a-agents": {"kube-system", map[string]string{"tier": "agent"}},
		"all":      {"kube-system", map[string]string{"tier": "store"}},
		"oldest":   {"other", nil},
		"":         {"default", map[string]string{"tier": "agent"}},
	} {
		got := ""
		if p := Choose(policies, c.namespace, c.labels); p != nil {
			got = p.Name
		}
		if got != want {
			t.Errorf("for %v in %s policy %q counts, want %q", c.labels, c.namespace, got, want)
		}
	}
}
