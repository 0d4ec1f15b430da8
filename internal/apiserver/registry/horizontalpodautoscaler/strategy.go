// Package horizontalpodautoscaler describes the kind HorizontalPodAutoscaler of autoscaling/v2, which
// autoscaling/v1 serves as well.
package horizontalpodautoscaler

import (
	"context"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList](resource.Kind{
		GroupVersion:  autoscalingv2.SchemeGroupVersion,
		OtherVersions: []schema.GroupVersion{autoscalingv1.SchemeGroupVersion},
		Kind:          "HorizontalPodAutoscaler",
		Plural:        "horizontalpodautoscalers", Singular: "horizontalpodautoscaler", ShortNames: []string{"hpa"},
		Categories: []string{"all"},
	}, resource.Rules[autoscalingv2.HorizontalPodAutoscaler]{
		Default: SetDefaults,
		Spec:    func(a *autoscalingv2.HorizontalPodAutoscaler) any { return &a.Spec },
		Status:  func(a *autoscalingv2.HorizontalPodAutoscaler) any { return &a.Status },
		Validate: func(_ context.Context, a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
			return Validate(&a.Spec, field.NewPath("spec"))
		},
		ValidateStatusUpdate: func(_ context.Context, a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
			status := field.NewPath("status")
			return append(amount.NonNegative(status.Child("currentReplicas"), int64(a.Status.CurrentReplicas)),
				amount.NonNegative(status.Child("desiredReplicas"), int64(a.Status.DesiredReplicas))...)
		},
		Table: printer,
	})
}

// What an autoscaler does that leaves it out.
const (
	defaultUtilization = 80 // percent of the requested processor time
	policySeconds      = 15
	upPods             = 4
)

// SetDefaults fills in what an autoscaler leaves out. The window in which the highest wish counts when the number
// falls stays out: it is the controller's.
func SetDefaults(a *autoscalingv2.HorizontalPodAutoscaler) {
	if a.Spec.MinReplicas == nil {
		a.Spec.MinReplicas = ptr.To[int32](1)
	}
	if len(a.Spec.Metrics) == 0 {
		a.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
				Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](defaultUtilization),
			}},
		}}
	}
	b := a.Spec.Behavior
	if b == nil {
		return
	}
	everything := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100,
		PeriodSeconds: policySeconds}
	some := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: upPods,
		PeriodSeconds: policySeconds}
	b.ScaleUp = rulesWith(b.ScaleUp, ptr.To[int32](0), some, everything)
	b.ScaleDown = rulesWith(b.ScaleDown, nil, everything)
}

// rulesWith returns the rules for one direction with what they leave out.
func rulesWith(r *autoscalingv2.HPAScalingRules, window *int32,
	policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	if r == nil {
		r = &autoscalingv2.HPAScalingRules{}
	}
	if r.StabilizationWindowSeconds == nil {
		r.StabilizationWindowSeconds = window
	}
	if r.SelectPolicy == nil {
		r.SelectPolicy = ptr.To(autoscalingv2.MaxChangePolicySelect)
	}
	if r.Policies == nil {
		r.Policies = slices.Clone(policies)
	}
	return r
}
