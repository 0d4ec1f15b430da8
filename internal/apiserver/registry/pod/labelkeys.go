package pod

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// matchLabelKeys turns "pods with the same value of this label as mine" into
// the value that the new pod has.
func matchLabelKeys(p *corev1.Pod) {
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		c.LabelSelector = withKeys(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, p.Labels)
	}
	a := p.Spec.Affinity
	if a == nil {
		return
	}
	if a.PodAffinity != nil {
		resolveTerms(
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, p.Labels,
		)
	}
	if a.PodAntiAffinity != nil {
		resolveTerms(
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, p.Labels,
		)
	}
}

func resolveTerms(must []corev1.PodAffinityTerm, want []corev1.WeightedPodAffinityTerm, labels map[string]string) {
	resolve := func(t *corev1.PodAffinityTerm) {
		t.LabelSelector = withKeys(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
		t.LabelSelector = withKeys(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, labels)
	}
	for i := range must {
		resolve(&must[i])
	}
	for i := range want {
		resolve(&want[i].PodAffinityTerm)
	}
}

// withKeys adds a requirement for every key that the labels have. A missing
// selector stays missing: it is not valid together with keys.
func withKeys(s *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator,
	labels map[string]string) *metav1.LabelSelector {
	if s == nil || len(keys) == 0 {
		return s
	}
	out := s.DeepCopy()
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
				Key:      key,
				Operator: operator,
				Values:   []string{value},
			})
		}
	}
	return out
}
