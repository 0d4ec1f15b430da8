package horizontalpodautoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/everynode/everynode/internal/controller/horizontalpodautoscaler/plan"
	"github.com/everynode/everynode/internal/untrusted/bounded"
)

const (
	// patience is how long a metric may take, and maxAnswer how many bytes it may have.
	patience  = 10 * time.Second
	maxAnswer = 16 << 20
	// defaultWindow is the time over which a pod's value is taken to be where it does not say.
	defaultWindow = time.Minute
)

// apiMetrics asks the API: what pods use at metrics.k8s.io, all else at the API servers of others.
type apiMetrics struct {
	client rest.Interface
	mapper meta.RESTMapper
}

// NewMetrics makes Metrics of the API. The mapper knows the kinds that metrics are about.
func NewMetrics(client rest.Interface, mapper meta.RESTMapper) Metrics {
	return apiMetrics{client, mapper}
}

// Read implements Metrics.
func (m apiMetrics) Read(ctx context.Context, namespace string, metric *autoscalingv2.MetricSpec,
	pods labels.Selector) plan.Reading {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out plan.Reading
	switch {
	case metric.Resource != nil:
		out.Pods, out.Err = m.resource(ctx, namespace, metric.Resource.Name, "", pods)
	case metric.ContainerResource != nil:
		out.Pods, out.Err = m.resource(ctx, namespace, metric.ContainerResource.Name, metric.ContainerResource.Container,
			pods)
	case metric.Pods != nil:
		out.Pods, out.Err = m.pods(ctx, namespace, metric.Pods.Metric, pods)
	case metric.Object != nil:
		out.Milli, out.Err = m.object(ctx, namespace, metric.Object)
	case metric.External != nil:
		out.Milli, out.Err = m.external(ctx, namespace, metric.External.Metric)
	}
	return out
}

// get reads a document of the API.
func (m apiMetrics) get(ctx context.Context, into any, query map[string]string, segments ...string) error {
	request := m.client.Get().AbsPath(segments...).SetHeader("Accept", "application/json")
	for name, value := range query {
		if value != "" {
			request = request.Param(name, value)
		}
	}
	body, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(bounded.Body(body, maxAnswer))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// resource is what pods use of a resource, in all their containers or in one. Pods of which not everything is known
// are left out.
func (m apiMetrics) resource(ctx context.Context, namespace string, name corev1.ResourceName, container string,
	pods labels.Selector) (
	map[string]plan.PodValue, error) {
	var list metricsv1beta1.PodMetricsList
	err := m.get(ctx, &list, map[string]string{"labelSelector": pods.String()},
		"/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods")
	if err == nil && len(list.Items) == 0 {
		err = errors.New("no metrics returned from resource metrics API")
	}
	if err != nil {
		return nil, fmt.Errorf("unable to get metrics for resource %s: %w", name, err)
	}
	out := map[string]plan.PodValue{}
	found := container == ""
	for _, p := range list.Items {
		value, whole := plan.PodValue{Time: p.Timestamp.Time, Window: p.Window.Duration}, len(p.Containers) > 0
		here := container == ""
		for _, c := range p.Containers {
			if container != "" && c.Name != container {
				continue
			}
			used, known := c.Usage[name]
			whole, here = whole && known, true
			value.Milli += used.MilliValue()
		}
		found = found || here
		if whole && here {
			out[p.Name] = value
		}
	}
	if !found {
		return nil, fmt.Errorf("container %s not present in metrics for pods in namespace %s", container, namespace)
	}
	return out, nil
}

// custom is the path of the preferred version of custom.metrics.k8s.io. All versions agree in what is read of them.
func (m apiMetrics) custom(ctx context.Context) (string, error) {
	var group metav1.APIGroup
	err := m.get(ctx, &group, nil, "/apis/custom.metrics.k8s.io")
	if err != nil {
		return "", fmt.Errorf("find the version of the custom metrics API: %w", err)
	}
	return "/apis/custom.metrics.k8s.io/" + group.PreferredVersion.Version, nil
}

func (m apiMetrics) pods(ctx context.Context, namespace string, id autoscalingv2.MetricIdentifier,
	pods labels.Selector) (
	map[string]plan.PodValue, error) {
	list, err := m.customList(ctx, namespace, id, map[string]string{"labelSelector": pods.String()}, "pods", "*")
	if err != nil {
		return nil, fmt.Errorf("unable to get metric %s: %w", id.Name, err)
	}
	out := map[string]plan.PodValue{}
	for _, v := range list.Items {
		window := defaultWindow
		if v.WindowSeconds != nil {
			window = time.Duration(*v.WindowSeconds) * time.Second
		}
		out[v.DescribedObject.Name] = plan.PodValue{Milli: v.Value.MilliValue(), Time: v.Timestamp.Time, Window: window}
	}
	return out, nil
}

func (m apiMetrics) object(ctx context.Context, namespace string, s *autoscalingv2.ObjectMetricSource) (int64, error) {
	ref := s.DescribedObject
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return 0, fmt.Errorf("unable to get metric %s: %w", s.Metric.Name, err)
	}
	kind := schema.GroupKind{Group: version.Group, Kind: ref.Kind}
	segments := []string{"metrics"} // of the namespace itself
	if kind != (schema.GroupKind{Kind: "Namespace"}) {
		mapping, err := m.mapper.RESTMapping(kind)
		if err != nil {
			return 0, fmt.Errorf("unable to get metric %s: %w", s.Metric.Name, err)
		}
		segments = []string{mapping.Resource.GroupResource().String(), ref.Name}
	}
	list, err := m.customList(ctx, namespace, s.Metric, map[string]string{}, segments...)
	if err == nil && len(list.Items) != 1 {
		err = fmt.Errorf("the custom metrics API returned %d values instead of one", len(list.Items))
	}
	if err != nil {
		return 0, fmt.Errorf("unable to get metric %s: %s on %s %s: %w", s.Metric.Name, ref.Kind, namespace, ref.Name, err)
	}
	return list.Items[0].Value.MilliValue(), nil
}

func (m apiMetrics) customList(ctx context.Context, namespace string, id autoscalingv2.MetricIdentifier,
	query map[string]string, about ...string) (
	*customv1beta2.MetricValueList, error) {
	selector, err := metav1.LabelSelectorAsSelector(id.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of the metric: %w", err)
	}
	if id.Selector != nil {
		query["metricLabelSelector"] = selector.String()
	}
	base, err := m.custom(ctx)
	if err != nil {
		return nil, err
	}
	list := &customv1beta2.MetricValueList{}
	err = m.get(ctx, list, query, append([]string{base, "namespaces", namespace, path.Join(about...)}, id.Name)...)
	return list, err
}

// external is the sum of a metric's values.
func (m apiMetrics) external(ctx context.Context, namespace string, id autoscalingv2.MetricIdentifier) (int64, error) {
	selector, err := metav1.LabelSelectorAsSelector(id.Selector)
	if err != nil {
		return 0, fmt.Errorf("read the selector of the metric: %w", err)
	}
	query := map[string]string{}
	if id.Selector != nil {
		query["labelSelector"] = selector.String()
	}
	var list externalv1beta1.ExternalMetricValueList
	err = m.get(ctx, &list, query, "/apis/external.metrics.k8s.io/v1beta1/namespaces", namespace, id.Name)
	if err == nil && len(list.Items) == 0 {
		err = errors.New("no metrics returned from external metrics API")
	}
	if err != nil {
		return 0, fmt.Errorf("unable to get external metric %s/%s/%s: %w", namespace, id.Name,
			metav1.FormatLabelSelector(id.Selector), err)
	}
	sum := int64(0)
	for _, v := range list.Items {
		sum += v.Value.MilliValue()
	}
	return sum, nil
}
