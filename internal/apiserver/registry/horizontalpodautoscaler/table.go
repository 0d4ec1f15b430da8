package horizontalpodautoscaler

import (
	"fmt"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"

	"github.com/everynode/everynode/internal/apiserver/table"
)

var printer = table.Of(func(a *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
	least := "<unset>"
	if a.Spec.MinReplicas != nil {
		least = fmt.Sprint(*a.Spec.MinReplicas)
	}
	return []any{
		a.Name, a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name, shownMetrics(a),
		least, int64(a.Spec.MaxReplicas), int64(a.Status.CurrentReplicas), table.Since(a.CreationTimestamp, now),
	}
},
	table.Name,
	table.Column{Name: "Reference", Description: "What is scaled."},
	table.Column{Name: "Targets", Description: "The metrics, as they are and as they should be."},
	table.Column{Name: "MinPods", Description: "The least number of pods."},
	table.Column{Name: "MaxPods", Type: "integer", Description: "The greatest number of pods."},
	table.Column{Name: "Replicas", Type: "integer", Description: "The number of pods."},
	table.Age,
)

const (
	unknown     = "<unknown>"
	shownAtMost = 2 // metrics in a cell
)

func shownMetrics(a *autoscalingv2.HorizontalPodAutoscaler) string {
	if len(a.Spec.Metrics) == 0 {
		return "<none>"
	}
	var out []string
	for i, m := range a.Spec.Metrics {
		if i == shownAtMost {
			break
		}
		var now autoscalingv2.MetricStatus
		if i < len(a.Status.CurrentMetrics) {
			now = a.Status.CurrentMetrics[i]
		}
		out = append(out, shownMetric(m, now))
	}
	text := strings.Join(out, ", ")
	if more := len(a.Spec.Metrics) - shownAtMost; more > 0 {
		text += fmt.Sprintf(" + %d more...", more)
	}
	return text
}

// shownMetric spells one metric: its value, or what is known of it, and its target.
func shownMetric(m autoscalingv2.MetricSpec, now autoscalingv2.MetricStatus) string {
	var target autoscalingv2.MetricTarget
	var current autoscalingv2.MetricValueStatus
	var before, after string
	switch {
	case m.External != nil:
		target = m.External.Target
		if now.External != nil {
			current = now.External.Current
		}
		if target.AverageValue != nil {
			after = " (avg)"
		}
	case m.Object != nil:
		target = m.Object.Target
		if now.Object != nil {
			current = now.Object.Current
		}
		if target.AverageValue != nil {
			after = " (avg)"
		}
	case m.Pods != nil:
		target = m.Pods.Target
		if now.Pods != nil {
			current = now.Pods.Current
		}
	case m.Resource != nil:
		target, before = m.Resource.Target, string(m.Resource.Name)+": "
		if now.Resource != nil {
			current = now.Resource.Current
		}
	case m.ContainerResource != nil:
		target, before = m.ContainerResource.Target, string(m.ContainerResource.Name)+": "
		if now.ContainerResource != nil {
			current = now.ContainerResource.Current
		}
	default:
		return "<unknown type>"
	}
	return before + shownValue(current, target) + after
}

func shownValue(current autoscalingv2.MetricValueStatus, target autoscalingv2.MetricTarget) string {
	is, wanted := unknown, unknown
	switch {
	case target.AverageValue != nil:
		wanted = target.AverageValue.String()
		if current.AverageValue != nil {
			is = current.AverageValue.String()
		}
	case target.AverageUtilization != nil:
		wanted = fmt.Sprintf("%d%%", *target.AverageUtilization)
		if current.AverageUtilization != nil {
			is = fmt.Sprintf("%d%%", *current.AverageUtilization)
		}
	case target.Value != nil:
		wanted = target.Value.String()
		if current.Value != nil {
			is = current.Value.String()
		}
	}
	return is + "/" + wanted
}
