package horizontalpodautoscaler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

type (
	autoscaler = autoscalingv2.HorizontalPodAutoscaler
	spec       = autoscalingv2.MetricSpec
)

// web scales a Deployment by all kinds of metrics, with a behavior.
func web(edits ...func(*autoscaler)) *autoscaler {
	id := autoscalingv2.MetricIdentifier{Name: "requests"}
	average := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType,
		AverageValue: ptr.To(resource.MustParse("10"))}
	value := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse("500m"))}
	half := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)}
	a := &autoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    5,
			Metrics: []spec{
				{Type: autoscalingv2.ResourceMetricSourceType,
					Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: half}},
				{Type: autoscalingv2.ContainerResourceMetricSourceType,
					ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: corev1.ResourceMemory, Container: "main",
						Target: average}},
				{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{Metric: id, Target: average}},
				{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{Metric: id, Target: value,
					DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "web"}}},
				{Type: autoscalingv2.ExternalMetricSourceType,
					External: &autoscalingv2.ExternalMetricSource{Metric: id, Target: value}},
			},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{},
		},
	}
	SetDefaults(a)
	for _, edit := range edits {
		edit(a)
	}
	return a
}

func TestDefaults(t *testing.T) {
	a := web()
	up, down := a.Spec.Behavior.ScaleUp, a.Spec.Behavior.ScaleDown
	got := fmt.Sprintln(*a.Spec.MinReplicas, *up.StabilizationWindowSeconds, *up.SelectPolicy, up.Policies,
		down.StabilizationWindowSeconds, *down.SelectPolicy, down.Policies)
	if want := "1 0 Max [{Pods 4 15} {Percent 100 15}] <nil> Max [{Percent 100 15}]\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	bare := &autoscaler{}
	SetDefaults(bare)
	if m := bare.Spec.Metrics; len(m) != 1 || m[0].Resource.Name != corev1.ResourceCPU ||
		*m[0].Resource.Target.AverageUtilization != 80 {
		t.Errorf("metrics by default: %v", m)
	}
	if bare.Spec.Behavior != nil {
		t.Errorf("behavior by default: %v", bare.Spec.Behavior)
	}
	given := web(func(a *autoscaler) {
		a.Spec.Behavior.ScaleDown = &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: ptr.To[int32](7), SelectPolicy: ptr.To(autoscalingv2.DisabledPolicySelect),
			Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 1, PeriodSeconds: 60}},
		}
		SetDefaults(a)
	}).Spec.Behavior.ScaleDown
	if got := fmt.Sprintln(*given.StabilizationWindowSeconds, *given.SelectPolicy,
		given.Policies); got != "7 Disabled [{Pods 1 60}]\n" {
		t.Errorf("defaults changed what was given: %s", got)
	}
}

// TestValidate: what is refused, and with which words.
func TestValidate(t *testing.T) {
	down := func(a *autoscaler) *autoscalingv2.HPAScalingRules { return a.Spec.Behavior.ScaleDown }
	for name, c := range map[string]struct {
		edit func(*autoscaler)
		want string
	}{
		"valid": {func(*autoscaler) {}, ""},
		"no pods": {func(a *autoscaler) { a.Spec.MinReplicas = ptr.To[int32](0) },
			"spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"},
		"no most": {func(a *autoscaler) { a.Spec.MaxReplicas, a.Spec.MinReplicas = 0, nil },
			"spec.maxReplicas: Invalid value: 0: must be greater than 0"},
		"most < least": {func(a *autoscaler) { a.Spec.MinReplicas = ptr.To[int32](6) },
			"spec.maxReplicas: Invalid value: 5: must be greater than or equal to `minReplicas`"},
		"no target": {func(a *autoscaler) { a.Spec.ScaleTargetRef.Kind = "" },
			"spec.scaleTargetRef.kind: Required value"},
		"bad target": {func(a *autoscaler) { a.Spec.ScaleTargetRef.Name = "a/b" },
			`spec.scaleTargetRef.name: Invalid value: "a/b": may not contain '/'`},
		"metric's type": {func(a *autoscaler) { a.Spec.Metrics = []spec{{Type: "Guess"}} },
			`spec.metrics[0].type: Unsupported value: "Guess": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"`},
		"other source": {func(a *autoscaler) { a.Spec.Metrics[0].Type = autoscalingv2.PodsMetricSourceType },
			"spec.metrics[0].pods: Required value: must populate information for the given metric source; spec.metrics[0].resource: Forbidden: must populate the given metric source only"},
		"two targets": {func(a *autoscaler) { a.Spec.Metrics[0].Resource.Target.AverageValue = ptr.To(resource.MustParse("1")) },
			"spec.metrics[0].resource.target.averageValue: Forbidden: may not set both a target raw value and a target utilization"},
		"no aim": {func(a *autoscaler) { a.Spec.Metrics[0].Resource.Target.AverageUtilization = nil },
			"spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization"},
		"no resource": {func(a *autoscaler) { a.Spec.Metrics[0].Resource.Name = "" },
			"spec.metrics[0].resource.name: Required value: must specify a resource name"},
		"no container": {func(a *autoscaler) { a.Spec.Metrics[1].ContainerResource.Container = "" },
			"spec.metrics[1].containerResource.container: Required value: must specify a container"},
		"no average": {func(a *autoscaler) { a.Spec.Metrics[2].Pods.Target.AverageValue = nil },
			"spec.metrics[2].pods.target.averageValue: Required value: must specify a positive target averageValue"},
		"no metric's name": {func(a *autoscaler) { a.Spec.Metrics[2].Pods.Metric.Name = "" },
			"spec.metrics[2].pods.metric.name: Required value: must specify a metric name"},
		"no object": {func(a *autoscaler) { a.Spec.Metrics[3].Object.DescribedObject.Name = "" },
			"spec.metrics[3].object.describedObject.name: Required value"},
		"object without aim": {func(a *autoscaler) { a.Spec.Metrics[3].Object.Target.Value = nil },
			"spec.metrics[3].object.target.averageValue: Required value: must set either a target value or averageValue"},
		"external with two": {func(a *autoscaler) { a.Spec.Metrics[4].External.Target.AverageValue = ptr.To(resource.MustParse("1")) },
			"spec.metrics[4].external.target.value: Forbidden: may not set both a target value for metric and a per-pod target"},
		"target's type": {func(a *autoscaler) { a.Spec.Metrics[4].External.Target.Type = "Much" },
			`spec.metrics[4].external.target.type: Invalid value: "Much": must be either Utilization, Value, or AverageValue`},
		"nothing wanted": {func(a *autoscaler) { a.Spec.Metrics[4].External.Target.Value = &resource.Quantity{} },
			`spec.metrics[4].external.target.value: Invalid value: "0": must be positive`},
		"window": {func(a *autoscaler) { down(a).StabilizationWindowSeconds = ptr.To[int32](3601) },
			"spec.behavior.scaleDown.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600"},
		"select": {func(a *autoscaler) { down(a).SelectPolicy = ptr.To[autoscalingv2.ScalingPolicySelect]("Any") },
			`spec.behavior.scaleDown.selectPolicy: Unsupported value: "Any": supported values: "Disabled", "Max", "Min"`},
		"no policies": {func(a *autoscaler) { down(a).Policies = []autoscalingv2.HPAScalingPolicy{} },
			"spec.behavior.scaleDown.policies: Required value: must specify at least one Policy"},
		"policy": {func(a *autoscaler) {
			down(a).Policies[0] = autoscalingv2.HPAScalingPolicy{Type: "Some", PeriodSeconds: 1801}
		},
			`spec.behavior.scaleDown.policies[0].type: Unsupported value: "Some": supported values: "Percent", "Pods"; ` +
				"spec.behavior.scaleDown.policies[0].value: Invalid value: 0: must be greater than zero; " +
				"spec.behavior.scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800"},
		"tolerance": {func(a *autoscaler) { down(a).Tolerance = ptr.To(resource.MustParse("-1")) },
			`spec.behavior.scaleDown.tolerance: Invalid value: "-1": must be greater than or equal to 0`},
	} {
		var got []string
		for _, err := range Validate(&web(c.edit).Spec, field.NewPath("spec")) {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: got %s, want %s", name, text, c.want)
		}
	}
}

// TestTable: what is known of the metrics, and no more than two of them.
func TestTable(t *testing.T) {
	cells := func(a *autoscaler) string {
		table, err := printer.ConvertToTable(t.Context(), a, nil)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintln(table.Rows[0].Cells...)
	}
	a := web(func(a *autoscaler) { a.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) })
	if got, want := cells(a), "web Deployment/web cpu: <unknown>/50%, memory: <unknown>/10 + 3 more... 1 5 0 60m\n"; got != want {
		t.Errorf("without a status: got %s, want %s", got, want)
	}
	a.Spec.Metrics = a.Spec.Metrics[3:]
	a.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
		Type:   autoscalingv2.ObjectMetricSourceType,
		Object: &autoscalingv2.ObjectMetricStatus{Current: autoscalingv2.MetricValueStatus{Value: ptr.To(resource.MustParse("3"))}},
	}}
	if got, want := cells(a), "web Deployment/web 3/500m, <unknown>/500m 1 5 0 60m\n"; got != want {
		t.Errorf("with a status: got %s, want %s", got, want)
	}
}
