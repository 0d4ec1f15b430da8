package scheme

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Annotations that carry through autoscaling/v1 what its fields cannot hold. They exist in that version only.
const (
	metricsAnnotation        = "autoscaling.alpha.kubernetes.io/metrics"
	behaviorAnnotation       = "autoscaling.alpha.kubernetes.io/behavior"
	currentMetricsAnnotation = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation     = "autoscaling.alpha.kubernetes.io/conditions"
)

// addAutoscalingConversion makes the autoscaler of autoscaling/v2 the internal type of autoscaling/v1.
func addAutoscalingConversion(s *runtime.Scheme) {
	add := func(from, to any, f conversion.ConversionFunc) { utilruntime.Must(s.AddConversionFunc(from, to, f)) }
	add((*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscalingv2.HorizontalPodAutoscaler)(nil),
		func(a, b any, _ conversion.Scope) error {
			fromAutoscalingV1(s, a.(*autoscalingv1.HorizontalPodAutoscaler), b.(*autoscalingv2.HorizontalPodAutoscaler))
			return nil
		})
	add((*autoscalingv2.HorizontalPodAutoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil),
		func(a, b any, _ conversion.Scope) error {
			return toAutoscalingV1(a.(*autoscalingv2.HorizontalPodAutoscaler), b.(*autoscalingv1.HorizontalPodAutoscaler))
		})
	add((*autoscalingv1.HorizontalPodAutoscalerList)(nil), (*autoscalingv2.HorizontalPodAutoscalerList)(nil),
		func(a, b any, _ conversion.Scope) error {
			in, out := a.(*autoscalingv1.HorizontalPodAutoscalerList), b.(*autoscalingv2.HorizontalPodAutoscalerList)
			out.ListMeta, out.Items = in.ListMeta, make([]autoscalingv2.HorizontalPodAutoscaler, len(in.Items))
			for i := range in.Items {
				fromAutoscalingV1(s, &in.Items[i], &out.Items[i])
			}
			return nil
		})
	add((*autoscalingv2.HorizontalPodAutoscalerList)(nil), (*autoscalingv1.HorizontalPodAutoscalerList)(nil),
		func(a, b any, _ conversion.Scope) error {
			in, out := a.(*autoscalingv2.HorizontalPodAutoscalerList), b.(*autoscalingv1.HorizontalPodAutoscalerList)
			out.ListMeta, out.Items = in.ListMeta, make([]autoscalingv1.HorizontalPodAutoscaler, len(in.Items))
			for i := range in.Items {
				err := toAutoscalingV1(&in.Items[i], &out.Items[i])
				if err != nil {
					return err
				}
			}
			return nil
		})
}

// carried reads an annotation. One that cannot be read counts for nothing, as in Kubernetes.
func carried[T any](annotations map[string]string, name string) (out T, ok bool) {
	text, ok := annotations[name]
	if !ok {
		return out, false
	}
	err := json.Unmarshal([]byte(text), &out)
	return out, err == nil
}

func withoutCarried(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, name := range []string{metricsAnnotation, behaviorAnnotation, currentMetricsAnnotation, conditionsAnnotation} {
		delete(out, name)
	}
	return out
}

func fromAutoscalingV1(s *runtime.Scheme, in *autoscalingv1.HorizontalPodAutoscaler,
	out *autoscalingv2.HorizontalPodAutoscaler) {
	*out = autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
			CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
		},
	}
	metrics, _ := carried[[]autoscalingv1.MetricSpec](in.Annotations, metricsAnnotation)
	for _, m := range metrics {
		out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(m))
	}
	if percent := in.Spec.TargetCPUUtilizationPercentage; percent != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
				Type: autoscalingv2.UtilizationMetricType, AverageUtilization: percent,
			}},
		})
	}
	behavior, ok := carried[carriedBehavior](in.Annotations, behaviorAnnotation)
	if ok {
		out.Spec.Behavior = behavior.restored()
	}
	current, ok := carried[[]autoscalingv1.MetricStatus](in.Annotations, currentMetricsAnnotation)
	if ok {
		for _, m := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, metricStatusFromV1(m))
		}
	} else if percent := in.Status.CurrentCPUUtilizationPercentage; percent != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: percent},
			},
		}}
	}
	conditions, _ := carried[[]autoscalingv1.HorizontalPodAutoscalerCondition](in.Annotations, conditionsAnnotation)
	for _, c := range conditions {
		out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type:   autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type),
			Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	out.Annotations = withoutCarried(in.Annotations)
	// Which metrics there are by default can be told only now that all are known.
	s.Default(out)
}

func toAutoscalingV1(in *autoscalingv2.HorizontalPodAutoscaler, out *autoscalingv1.HorizontalPodAutoscaler) error {
	*out = autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
			CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
		},
	}
	out.Annotations = withoutCarried(in.Annotations)
	var metrics []autoscalingv1.MetricSpec
	for _, m := range in.Spec.Metrics {
		if r := m.Resource; r != nil && r.Name == corev1.ResourceCPU && r.Target.AverageUtilization != nil &&
			m.Type == autoscalingv2.ResourceMetricSourceType && out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = r.Target.AverageUtilization
			continue
		}
		metrics = append(metrics, metricToV1(m))
	}
	var current []autoscalingv1.MetricStatus
	for _, m := range in.Status.CurrentMetrics {
		if r := m.Resource; r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = r.Current.AverageUtilization
		}
		// Those of the processor too: the field holds no more than a percentage.
		current = append(current, metricStatusToV1(m))
	}
	return carry(out, []passenger{
		{metricsAnnotation, metrics, len(metrics) > 0},
		{behaviorAnnotation, carryBehavior(in.Spec.Behavior), in.Spec.Behavior != nil},
		{currentMetricsAnnotation, current, len(current) > 0},
		{conditionsAnnotation, conditionsToV1(in.Status.Conditions), len(in.Status.Conditions) > 0},
	})
}

func conditionsToV1(in []autoscalingv2.HorizontalPodAutoscalerCondition) (
	out []autoscalingv1.HorizontalPodAutoscalerCondition) {
	for _, c := range in {
		out = append(out, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type:   autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type),
			Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	return out
}

// passenger is what an annotation carries.
type passenger struct {
	annotation string
	value      any
	there      bool
}

func carry(out *autoscalingv1.HorizontalPodAutoscaler, passengers []passenger) error {
	for _, p := range passengers {
		if !p.there {
			continue
		}
		text, err := json.Marshal(p.value)
		if err != nil {
			return fmt.Errorf("write the annotation %s: %w", p.annotation, err)
		}
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[p.annotation] = string(text)
	}
	return nil
}

// carriedBehavior is a behavior as the annotation spells it: all fields, under their Go names.
type carriedBehavior struct {
	ScaleUp, ScaleDown *carriedRules
}

type carriedRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []carriedPolicy
	Tolerance                  *resource.Quantity
}

type carriedPolicy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func carryBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) *carriedBehavior {
	if b == nil {
		return nil
	}
	rules := func(r *autoscalingv2.HPAScalingRules) *carriedRules {
		if r == nil {
			return nil
		}
		out := &carriedRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy,
			Tolerance: r.Tolerance}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies, carriedPolicy{p.Type, p.Value, p.PeriodSeconds})
		}
		return out
	}
	return &carriedBehavior{ScaleUp: rules(b.ScaleUp), ScaleDown: rules(b.ScaleDown)}
}

func (c carriedBehavior) restored() *autoscalingv2.HorizontalPodAutoscalerBehavior {
	if c.ScaleUp == nil && c.ScaleDown == nil {
		return nil
	}
	rules := func(r *carriedRules) *autoscalingv2.HPAScalingRules {
		if r == nil {
			return nil
		}
		out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds,
			SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
		for _, p := range r.Policies {
			out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy{Type: p.Type, Value: p.Value,
				PeriodSeconds: p.PeriodSeconds})
		}
		return out
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(c.ScaleUp), ScaleDown: rules(c.ScaleDown)}
}
