// Package placement checks where a pod may run: affinity, tolerations and topology spread.
package placement

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

// RequiredTerms and PreferredTerms name the fields of what must be, and of what is better.
const (
	RequiredTerms  = "requiredDuringSchedulingIgnoredDuringExecution"
	PreferredTerms = "preferredDuringSchedulingIgnoredDuringExecution"
	weightRange    = "must be in the range 1-100"
	unknownSelOp   = "not a valid selector operator"
)

// Affinity checks which nodes and pods a pod wants near it, or far.
func Affinity(a *corev1.Affinity, path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if n := a.NodeAffinity; n != nil {
		errs = append(errs, validateNodeAffinity(n, path.Child("nodeAffinity"))...)
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return errs
}

func validateNodeAffinity(n *corev1.NodeAffinity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		errs = append(errs, NodeSelector(n.RequiredDuringSchedulingIgnoredDuringExecution, path.Child(RequiredTerms))...)
	}
	for i, t := range enough.Each(n.PreferredDuringSchedulingIgnoredDuringExecution, &errs) {
		at := path.Child(PreferredTerms).Index(i)
		if t.Weight <= 0 || t.Weight > 100 {
			errs = append(errs, field.Invalid(at.Child("weight"), t.Weight, weightRange))
		}
		errs = append(errs, nodeTerm(&t.Preference, at.Child("preference"))...)
	}
	return errs
}

// NodeSelector checks a choice of nodes.
func NodeSelector(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	at := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(at, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range enough.Each(s.NodeSelectorTerms, &errs) {
		errs = append(errs, nodeTerm(&s.NodeSelectorTerms[i], at.Index(i))...)
	}
	return errs
}

func nodeTerm(t *corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, r := range enough.Each(t.MatchExpressions, &errs) {
		errs = append(errs, nodeExpression(r, path.Child("matchExpressions").Index(i))...)
	}
	for i, r := range enough.Each(t.MatchFields, &errs) {
		errs = append(errs, nodeField(r, path.Child("matchFields").Index(i))...)
	}
	return errs
}

func nodeExpression(r corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, unknownSelOp))
	}
	errs = append(errs, check.LabelName(path.Child("key"), r.Key)...)
	for i, v := range enough.Each(r.Values, &errs) {
		errs = append(errs, check.Invalid(values.Index(i), v, utilvalidation.IsValidLabelValue(v))...)
	}
	return errs
}

// nodeField checks a choice by field, of which a node's name is the only one.
func nodeField(r corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(
				values, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
			))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, unknownSelOp))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, v := range enough.Each(r.Values, &errs) {
		errs = append(errs, check.DNSSubdomain(values.Index(i), v)...)
	}
	return errs
}

func podTerms(must []corev1.PodAffinityTerm, want []corev1.WeightedPodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range enough.Each(must, &errs) {
		errs = append(errs, podTerm(&must[i], path.Child(RequiredTerms).Index(i))...)
	}
	for i := range enough.Each(want, &errs) {
		at := path.Child(PreferredTerms).Index(i)
		if w := want[i].Weight; w <= 0 || w > 100 {
			errs = append(errs, field.Invalid(at.Child("weight"), w, weightRange))
		}
		errs = append(errs, podTerm(&want[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func podTerm(t *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	// There may be 100,000 terms. The place is named for those that have something there.
	if t.LabelSelector != nil {
		errs = append(errs, selector(t.LabelSelector, path.Child("labelSelector"))...)
	}
	if t.NamespaceSelector != nil {
		errs = append(errs, selector(t.NamespaceSelector, path.Child("namespaceSelector"))...)
	}
	for _, name := range enough.Each(t.Namespaces, &errs) {
		errs = append(errs, check.DNSLabel(path.Child("namespace"), name)...)
	}
	errs = append(errs, labelKeys(t.MatchLabelKeys, t.LabelSelector, path.Child("matchLabelKeys"))...)
	errs = append(errs, labelKeys(t.MismatchLabelKeys, t.LabelSelector, path.Child("mismatchLabelKeys"))...)
	if t.TopologyKey == "" {
		errs = append(errs, field.Required(path.Child("topologyKey"), "can not be empty"))
	}
	return append(errs, check.LabelName(path.Child("topologyKey"), t.TopologyKey)...)
}

func selector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return enough.LabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// labelKeys checks keys whose values come from the pod's own labels.
func labelKeys(keys []string, s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if len(keys) == 0 {
		return nil
	}
	if s == nil {
		return field.ErrorList{field.Forbidden(path, "must not be specified when labelSelector is not set")}
	}
	var errs field.ErrorList
	for i, key := range enough.Each(keys, &errs) {
		errs = append(errs, metav1validation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}
