package plan

import (
	"fmt"
	"math"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/pod"
)

// opinion is what one metric says.
type opinion struct {
	replicas int32
	// name is how texts call the metric.
	name   string
	status autoscalingv2.MetricStatus
}

// wish is the greatest number of pods that a metric asks for, and that metric's name. False means that none is to
// be trusted: all have failed, or some have and the others ask for less than there is.
func (d *decision) wish() (wish int32, metric string, ok bool) {
	metrics := d.Autoscaler.Spec.Metrics
	if f := d.SelectorErr; f != nil {
		d.event(corev1.EventTypeWarning, f.Reason, f.Err.Error())
		reason := "InvalidSelector"
		if f.Reason == Ambiguous {
			reason = Ambiguous
		}
		d.condition(autoscalingv2.ScalingActive, false, reason, f.Err.Error())
		d.Err = OfSpec(f.Err)
		return 0, "", false
	}
	d.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(metrics))
	var first *Failure
	failed, found := 0, false
	for i := range metrics {
		o, err := d.opinion(&metrics[i], d.Readings[i])
		said := Said{Type: metrics[i].Type, Replicas: o.replicas, Err: err, Took: d.Readings[i].Took}
		d.Said = append(d.Said, said)
		if err != nil {
			f := &Failure{Reason: "FailedGet" + string(metrics[i].Type) + "Metric", Err: err}
			d.event(corev1.EventTypeWarning, f.Reason, err.Error())
			failed++
			if first == nil {
				first = f
			}
			continue
		}
		d.Status.CurrentMetrics[i] = o.status
		if !found || o.replicas > wish {
			wish, metric, found = o.replicas, o.name, true
		}
	}
	if first != nil {
		d.Err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", failed, len(metrics), first.Err)
	}
	if !found || failed > 0 && wish < d.Scale.Wanted {
		d.condition(autoscalingv2.ScalingActive, false, first.Reason,
			fmt.Sprintf("the HPA was unable to compute the replica count: %v", first.Err))
		d.event(corev1.EventTypeWarning, "FailedComputeMetricsReplicas", d.Err.Error())
		return 0, "", false
	}
	d.condition(autoscalingv2.ScalingActive, true, "ValidMetricFound",
		fmt.Sprintf("the HPA was able to successfully calculate a replica count from %s", metric))
	return wish, metric, true
}

// opinion asks one metric.
func (d *decision) opinion(m *autoscalingv2.MetricSpec, r Reading) (opinion, error) {
	if r.Err != nil {
		return opinion{}, r.Err
	}
	out := opinion{status: autoscalingv2.MetricStatus{Type: m.Type}}
	var current autoscalingv2.MetricValueStatus
	var err error
	switch {
	case m.Resource != nil:
		s := m.Resource
		out.replicas, out.name, current, err = d.resource(s.Name, "", &s.Target, r.Pods)
		out.status.Resource = &autoscalingv2.ResourceMetricStatus{Name: s.Name, Current: current}
	case m.ContainerResource != nil:
		s := m.ContainerResource
		out.replicas, out.name, current, err = d.resource(s.Name, s.Container, &s.Target, r.Pods)
		out.status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: s.Name, Container: s.Container,
			Current: current}
	case m.Pods != nil:
		s := m.Pods
		out.name = "pods metric " + s.Metric.Name
		out.replicas, current, err = d.average("", s.Target.AverageValue.MilliValue(), r.Pods)
		out.status.Pods = &autoscalingv2.PodsMetricStatus{Metric: s.Metric, Current: current}
	case m.Object != nil:
		s := m.Object
		out.name = s.DescribedObject.Kind + " metric " + s.Metric.Name
		out.replicas, current, err = d.whole(&s.Target, r.Milli)
		out.status.Object = &autoscalingv2.ObjectMetricStatus{Metric: s.Metric, DescribedObject: s.DescribedObject,
			Current: current}
	case m.External != nil:
		s := m.External
		out.name = fmt.Sprintf("external metric %s(%s)", s.Metric.Name, metav1.FormatLabelSelector(s.Metric.Selector))
		out.replicas, current, err = d.whole(&s.Target, r.Milli)
		out.status.External = &autoscalingv2.ExternalMetricStatus{Metric: s.Metric, Current: current}
	default:
		err = OfSpec(fmt.Errorf("unknown metric source type %q", m.Type))
	}
	return out, err
}

// resource asks a metric of what pods use, of all their containers or of one.
func (d *decision) resource(name corev1.ResourceName, container string, t *autoscalingv2.MetricTarget,
	values map[string]PodValue) (
	replicas int32, metric string, current autoscalingv2.MetricValueStatus, err error) {
	metric = string(name)
	if container != "" {
		metric += " container"
	}
	metric += " resource"
	if t.AverageValue != nil {
		replicas, current, err = d.average(name, t.AverageValue.MilliValue(), values)
		return replicas, metric, current, err
	}
	g, err := d.grouped(name, values)
	if err != nil {
		return 0, metric, current, err
	}
	requests, err := requests(d.Pods, name, container)
	if err != nil {
		return 0, metric, current, err
	}
	target := float64(*t.AverageUtilization)
	replicas, sum, err := d.replicas(g, func(v map[string]int64) (float64, sums) {
		s := sums{}
		for pod, used := range v {
			// What is there no more, or not yet, has no request.
			if request, known := requests[pod]; known {
				s.used, s.requested, s.pods = s.used+used, s.requested+request, s.pods+1
			}
		}
		if s.requested == 0 {
			return 0, sums{}
		}
		return float64(s.percent()) / target, s
	}, func(pod string) int64 { return int64(float64(requests[pod]) * max(1, target/100)) })
	if err != nil {
		return 0, metric, current, err
	}
	current.AverageUtilization = ptr.To(int32(min(sum.percent(), math.MaxInt32)))
	current.AverageValue = milli(sum.used / sum.pods)
	return replicas, metric + " utilization (percentage of request)", current, nil
}

// average asks a metric that has a value for each pod, whose average should be that many thousandths.
func (d *decision) average(name corev1.ResourceName, target int64, values map[string]PodValue) (int32,
	autoscalingv2.MetricValueStatus, error) {
	var current autoscalingv2.MetricValueStatus
	g, err := d.grouped(name, values)
	if err != nil {
		return 0, current, err
	}
	replicas, sum, err := d.replicas(g, func(v map[string]int64) (float64, sums) {
		s := sums{}
		for _, used := range v {
			s.used, s.pods = s.used+used, s.pods+1
		}
		if s.pods == 0 {
			return 0, s
		}
		return float64(s.used/s.pods) / float64(target), s
	}, func(string) int64 { return target })
	if err != nil {
		return 0, current, err
	}
	current.AverageValue = milli(sum.used / sum.pods)
	return replicas, current, nil
}

// whole asks a metric that has one value for all pods.
func (d *decision) whole(t *autoscalingv2.MetricTarget, value int64) (int32, autoscalingv2.MetricValueStatus, error) {
	now := d.Scale.Observed
	if t.Value != nil && (t.Type == autoscalingv2.ValueMetricType || t.AverageValue == nil) {
		current := autoscalingv2.MetricValueStatus{Value: milli(value)}
		ratio := float64(value) / float64(t.Value.MilliValue())
		if d.tolerable(ratio) {
			return d.Scale.Wanted, current, nil
		}
		ready := 0
		for i := range d.Pods {
			if d.Pods[i].Status.Phase == corev1.PodRunning && pod.IsReady(&d.Pods[i]) {
				ready++
			}
		}
		if len(d.Pods) == 0 {
			return 0, current, errNoPods
		}
		return ceil(ratio * float64(ready)), current, nil
	}
	target := float64(t.AverageValue.MilliValue())
	out := now
	if now == 0 || !d.tolerable(float64(value)/(target*float64(now))) {
		out = ceil(float64(value) / target)
	}
	current := autoscalingv2.MetricValueStatus{}
	if now > 0 {
		current.AverageValue = milli(int64(math.Ceil(float64(value) / float64(now))))
	}
	return out, current, nil
}

func milli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }

// ceil rounds up, within what a number of pods can be.
func ceil(f float64) int32 { return int32(min(max(math.Ceil(f), 0), math.MaxInt32)) }
