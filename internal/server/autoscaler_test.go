package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"
)

// TestAutoscaler: the number of pods of a Deployment follows a metric of an API server of others.
func TestAutoscaler(t *testing.T) {
	t.Parallel()
	s, client := first(t, "10.96.0.0/24")
	ctx := t.Context()
	var length atomic.Int32 // of the queue
	var used atomic.Int32
	var asks atomic.Value
	length.Store(6)
	server := others(t, s, client)
	front := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.TrimPrefix(r.URL.Path, "/apis/external.metrics.k8s.io/v1beta1"); path {
		case "":
			answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
				GroupVersion: "external.metrics.k8s.io/v1beta1", APIResources: []metav1.APIResource{
					{Name: "queue", Namespaced: true, Kind: "ExternalMetricValueList", Verbs: metav1.Verbs{"get"}},
				}})
		case "/namespaces/default/queue":
			asks.Store(r.Header.Get("X-Remote-User"))
			answer(w, map[string]any{"items": []any{map[string]any{"metricName": "queue", "value": fmt.Sprint(length.Load())}}})
		default:
			front.ServeHTTP(w, r)
		}
	})
	serviceInPod(t, client, "others", tunnels(t, s.pki, server.Listener.Addr().String(), &used))
	api := aggregatorclient.NewForConfigOrDie(s.ClientConfig()).ApiregistrationV1().APIServices()
	if _, err := api.Create(ctx, apiService(s, "external.metrics.k8s.io", "v1beta1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}}}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}
	if _, err := client.AppsV1().Deployments("default").Create(ctx, web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	scalers := client.AutoscalingV2().HorizontalPodAutoscalers("default")
	scaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    5,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType,
				External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: "queue"},
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType,
						AverageValue: ptr.To(resource.MustParse("2"))},
				}}},
		}}
	if _, err := scalers.Create(ctx, scaler, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stands := func(replicas int32, reasons string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d pods are wanted", replicas), func(ctx context.Context) error {
			d, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			a, err := scalers.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			var said []string
			for _, c := range a.Status.Conditions {
				said = append(said, c.Reason)
			}
			if *d.Spec.Replicas != replicas || strings.Join(said, " ") != reasons {
				return fmt.Errorf("the Deployment wants %d, the autoscaler says %v", *d.Spec.Replicas, a.Status.Conditions)
			}
			return nil
		})
	}
	stands(3, "SucceededRescale ValidMetricFound DesiredWithinRange")
	if got := asks.Load(); got != "system:serviceaccount:kube-system:horizontal-pod-autoscaler" {
		t.Errorf("%v asks for metrics", got)
	}
	// A change of the autoscaler is acted on at once, and the bound counts.
	length.Store(60)
	patch := []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"maxReplicas":4}}`)
	if _, err := scalers.Patch(ctx, "web", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	stands(4, "SucceededRescale ValidMetricFound TooManyReplicas")
	const told = "New size: 4; reason: external metric queue(<none>) above target"
	eventually(t, "there is an event", func(ctx context.Context) error {
		events, err := client.CoreV1().Events("default").List(ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.kind=HorizontalPodAutoscaler"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "SuccessfulRescale" && e.Message == told {
				return nil
			}
		}
		return fmt.Errorf("events: %v", events.Items)
	})
}
