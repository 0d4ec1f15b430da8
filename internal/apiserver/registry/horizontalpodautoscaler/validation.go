package horizontalpodautoscaler

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// The longest times that rules may look back over.
const (
	maxWindowSeconds = 3600
	maxPeriodSeconds = 1800
)

// Validate checks an autoscaler's specification.
func Validate(spec *autoscalingv2.HorizontalPodAutoscalerSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.MinReplicas != nil && *spec.MinReplicas < 1 {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), *spec.MinReplicas, "must be greater than or equal to 1"))
	}
	if spec.MaxReplicas < 1 {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than 0"))
	}
	if spec.MinReplicas != nil && spec.MaxReplicas < *spec.MinReplicas {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas,
			"must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, reference(spec.ScaleTargetRef, path.Child("scaleTargetRef"))...)
	for i := range enough.Each(spec.Metrics, &errs) {
		errs = append(errs, metric(&spec.Metrics[i], path.Child("metrics").Index(i))...)
	}
	if b := spec.Behavior; b != nil {
		errs = append(errs, rules(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, rules(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func reference(ref autoscalingv2.CrossVersionObjectReference, path *field.Path) field.ErrorList {
	return append(segment(ref.Kind, path.Child("kind"), ""), segment(ref.Name, path.Child("name"), "")...)
}

// segment checks a text that becomes a part of a URL's path.
func segment(text string, path *field.Path, missing string) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(path, missing)}
	}
	var errs field.ErrorList
	for _, message := range content.IsPathSegmentName(text) {
		errs = append(errs, field.Invalid(path, text, message))
	}
	return errs
}

// source is one of the fields of a metric, of which its type names one.
type source struct {
	kind  autoscalingv2.MetricSourceType
	field string
	check func(*field.Path) field.ErrorList // nil if the field is not set
}

func sources(m *autoscalingv2.MetricSpec) []source {
	out := []source{
		{kind: autoscalingv2.ContainerResourceMetricSourceType, field: "containerResource"},
		{kind: autoscalingv2.ExternalMetricSourceType, field: "external"},
		{kind: autoscalingv2.ObjectMetricSourceType, field: "object"},
		{kind: autoscalingv2.PodsMetricSourceType, field: "pods"},
		{kind: autoscalingv2.ResourceMetricSourceType, field: "resource"},
	}
	if s := m.ContainerResource; s != nil {
		out[0].check = func(p *field.Path) field.ErrorList { return containerResource(s, p) }
	}
	if s := m.External; s != nil {
		out[1].check = func(p *field.Path) field.ErrorList { return external(s, p) }
	}
	if s := m.Object; s != nil {
		out[2].check = func(p *field.Path) field.ErrorList { return object(s, p) }
	}
	if s := m.Pods; s != nil {
		out[3].check = func(p *field.Path) field.ErrorList { return pods(s, p) }
	}
	if s := m.Resource; s != nil {
		out[4].check = func(p *field.Path) field.ErrorList { return resourceSource(string(s.Name), &s.Target, p) }
	}
	return out
}

func metric(m *autoscalingv2.MetricSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var kinds []autoscalingv2.MetricSourceType
	known := false
	for _, s := range sources(m) {
		kinds = append(kinds, s.kind)
		known = known || m.Type == s.kind
	}
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	if !known {
		errs = append(errs, field.NotSupported(path.Child("type"), m.Type, kinds))
	}
	for _, s := range sources(m) {
		switch own := s.kind == m.Type; {
		case own && s.check == nil:
			errs = append(errs, field.Required(path.Child(s.field), "must populate information for the given metric source"))
		case own:
			errs = append(errs, s.check(path.Child(s.field))...)
		case s.check != nil:
			errs = append(errs, field.Forbidden(path.Child(s.field), "must populate the given metric source only"))
		}
	}
	return errs
}

func object(s *autoscalingv2.ObjectMetricSource, path *field.Path) field.ErrorList {
	errs := reference(s.DescribedObject, path.Child("describedObject"))
	errs = append(errs, identifier(&s.Metric, path.Child("metric"))...)
	errs = append(errs, target(&s.Target, path.Child("target"))...)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"),
			"must set either a target value or averageValue"))
	}
	return errs
}

func external(s *autoscalingv2.ExternalMetricSource, path *field.Path) field.ErrorList {
	errs := identifier(&s.Metric, path.Child("metric"))
	errs = append(errs, target(&s.Target, path.Child("target"))...)
	switch value, average := s.Target.Value, s.Target.AverageValue; {
	case value == nil && average == nil:
		errs = append(errs, field.Required(path.Child("target", "averageValue"),
			"must set either a target value for metric or a per-pod target"))
	case value != nil && average != nil:
		errs = append(errs, field.Forbidden(path.Child("target", "value"),
			"may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func pods(s *autoscalingv2.PodsMetricSource, path *field.Path) field.ErrorList {
	errs := identifier(&s.Metric, path.Child("metric"))
	errs = append(errs, target(&s.Target, path.Child("target"))...)
	if s.Target.AverageValue == nil || s.Target.AverageValue.Sign() != 1 {
		errs = append(errs, field.Required(path.Child("target", "averageValue"),
			"must specify a positive target averageValue"))
	}
	return errs
}

func containerResource(s *autoscalingv2.ContainerResourceMetricSource, path *field.Path) field.ErrorList {
	errs := resourceSource(string(s.Name), &s.Target, path)
	if s.Container == "" {
		errs = append(errs, field.Required(path.Child("container"), "must specify a container"))
	}
	return errs
}

func resourceSource(name string, t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	}
	errs = append(errs, target(t, path.Child("target"))...)
	switch utilization, average := t.AverageUtilization, t.AverageValue; {
	case utilization == nil && average == nil:
		errs = append(errs, field.Required(path.Child("target", "averageUtilization"),
			"must set either a target raw value or a target utilization"))
	case utilization != nil && average != nil:
		errs = append(errs, field.Forbidden(path.Child("target", "averageValue"),
			"may not set both a target raw value and a target utilization"))
	}
	return errs
}

func identifier(id *autoscalingv2.MetricIdentifier, path *field.Path) field.ErrorList {
	return segment(id.Name, path.Child("name"), "must specify a metric name")
}

func target(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	case "":
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	default:
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	positive := func(q *resource.Quantity, name string) {
		if q != nil && q.Sign() != 1 {
			errs = append(errs, field.Invalid(path.Child(name), q, "must be positive"))
		}
	}
	positive(t.Value, "value")
	positive(t.AverageValue, "averageValue")
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}

func rules(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if w := r.StabilizationWindowSeconds; w != nil && *w < 0 {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *w,
			"must be greater than or equal to zero"))
	} else if w != nil && *w > maxWindowSeconds {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), *w,
			fmt.Sprintf("must be less than or equal to %v", maxWindowSeconds)))
	}
	if r.SelectPolicy != nil {
		switch *r.SelectPolicy {
		case autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect:
		default:
			errs = append(errs, field.NotSupported(path.Child("selectPolicy"), *r.SelectPolicy,
				[]autoscalingv2.ScalingPolicySelect{
					autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect,
				}))
		}
	}
	if r.Tolerance != nil && r.Tolerance.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), r.Tolerance.String(),
			"must be greater than or equal to 0"))
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range enough.Each(r.Policies, &errs) {
		errs = append(errs, policy(p, path.Child("policies").Index(i))...)
	}
	return errs
}

func policy(p autoscalingv2.HPAScalingPolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Type != autoscalingv2.PodsScalingPolicy && p.Type != autoscalingv2.PercentScalingPolicy {
		errs = append(errs, field.NotSupported(path.Child("type"), p.Type, []autoscalingv2.HPAScalingPolicyType{
			autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy,
		}))
	}
	if p.Value <= 0 {
		errs = append(errs, field.Invalid(path.Child("value"), p.Value, "must be greater than zero"))
	}
	switch {
	case p.PeriodSeconds <= 0:
		errs = append(errs, field.Invalid(path.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
	case p.PeriodSeconds > maxPeriodSeconds:
		errs = append(errs, field.Invalid(path.Child("periodSeconds"), p.PeriodSeconds,
			fmt.Sprintf("must be less than or equal to %v", maxPeriodSeconds)))
	}
	return errs
}
