package scheme_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/registry"
	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// TestAutoscalersKeepAll: what autoscaling/v1 has no fields for travels in annotations, there and back.
func TestAutoscalersKeepAll(t *testing.T) {
	types := scheme.New(registry.Kinds())
	quantity := func(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }
	id := autoscalingv2.MetricIdentifier{Name: "requests",
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	service := autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "web"}
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: quantity("10")}
	value := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: quantity("7")}
	half := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)}
	is := autoscalingv2.MetricValueStatus{AverageValue: quantity("5"), AverageUtilization: ptr.To[int32](20)}
	rules := &autoscalingv2.HPAScalingRules{
		StabilizationWindowSeconds: ptr.To[int32](30), SelectPolicy: ptr.To(autoscalingv2.MinChangePolicySelect),
		Tolerance: quantity("50m"),
		Policies:  []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 2, PeriodSeconds: 60}},
	}
	whole := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"mine": "yes"}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    ptr.To[int32](2), MaxReplicas: 5,
			Metrics: []autoscalingv2.MetricSpec{
				{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{DescribedObject: service, Metric: id, Target: value}},
				{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{DescribedObject: service, Metric: id, Target: average}},
				{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: id, Target: average}},
				{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory, Target: half}},
				{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: corev1.ResourceCPU, Container: "main", Target: half}},
				{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: id, Target: value}},
				{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: id, Target: average}},
				{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: half}},
			},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules, ScaleDown: rules},
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: ptr.To[int64](3), LastScaleTime: &metav1.Time{}, CurrentReplicas: 3, DesiredReplicas: 4,
			CurrentMetrics: []autoscalingv2.MetricStatus{
				{Type: "Object", Object: &autoscalingv2.ObjectMetricStatus{DescribedObject: service, Metric: id,
					Current: autoscalingv2.MetricValueStatus{Value: quantity("7")}}},
				{Type: "Pods", Pods: &autoscalingv2.PodsMetricStatus{Metric: id,
					Current: autoscalingv2.MetricValueStatus{AverageValue: quantity("7")}}},
				{Type: "Resource", Resource: &autoscalingv2.ResourceMetricStatus{Name: corev1.ResourceCPU, Current: is}},
				{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: corev1.ResourceCPU, Container: "main", Current: is}},
				{Type: "External", External: &autoscalingv2.ExternalMetricStatus{Metric: id,
					Current: autoscalingv2.MetricValueStatus{Value: quantity("7")}}},
			},
			Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.AbleToScale, Status: "True",
				Reason: "R", Message: "m"}},
		},
	}
	before := whole.DeepCopy()
	old := &autoscalingv1.HorizontalPodAutoscaler{}
	convert(t, types, whole, old)
	if *old.Spec.TargetCPUUtilizationPercentage != 50 || *old.Status.CurrentCPUUtilizationPercentage != 20 ||
		len(old.Annotations) != 5 {
		t.Errorf("in autoscaling/v1: %+v %+v %v", old.Spec, old.Status, old.Annotations)
	}
	const behavior = `{"ScaleUp":{"StabilizationWindowSeconds":30,"SelectPolicy":"Min","Policies":[{"Type":"Pods","Value":2,"PeriodSeconds":60}],"Tolerance":"50m"},`
	if got := old.Annotations["autoscaling.alpha.kubernetes.io/behavior"]; !strings.HasPrefix(got, behavior) {
		t.Errorf("the behavior travels as %s", got)
	}
	back := &autoscalingv2.HorizontalPodAutoscaler{}
	convert(t, types, old, back)
	if d := cmp.Diff(before, back); d != "" {
		t.Errorf("there and back:\n%s", d)
	}
	if d := cmp.Diff(before, whole); d != "" {
		t.Errorf("the conversion changed what it read:\n%s", d)
	}
}

// TestAutoscalerOfOldVersion: without metrics it is one of the processor, and annotations that cannot be read count
// for nothing.
func TestAutoscalerOfOldVersion(t *testing.T) {
	types := scheme.New(registry.Kinds())
	old := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"autoscaling.alpha.kubernetes.io/metrics": "{", "autoscaling.alpha.kubernetes.io/behavior": "{}",
	}}}
	out := &autoscalingv2.HorizontalPodAutoscaler{}
	convert(t, types, old, out)
	if m := out.Spec.Metrics; len(m) != 1 || m[0].Resource == nil || *m[0].Resource.Target.AverageUtilization != 80 {
		t.Errorf("metrics: %v", m)
	}
	if out.Spec.Behavior != nil || len(out.Annotations) > 0 {
		t.Errorf("behavior %v, annotations %v", out.Spec.Behavior, out.Annotations)
	}
	version, err := types.VersionFor("autoscaling")
	if err != nil || version != autoscalingv2.SchemeGroupVersion {
		t.Errorf("stored as %v, %v", version, err)
	}
}

func convert(t *testing.T, types *scheme.Set, in, out any) {
	t.Helper()
	err := types.Convert(in, out, nil)
	if err != nil {
		t.Fatal(err)
	}
}
