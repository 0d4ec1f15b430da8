package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/everynode/everynode/internal/controller/horizontalpodautoscaler/plan"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// world is a writer, metrics and a recorder that remember.
type world struct {
	client  client.Client
	scale   plan.Scale
	missing error // of the scale
	refused error // of the change
	silent  error // of the metric
	stale   bool  // whether the status is written too late
	wish    int64
	done    []string
}

// Scale implements Writer.
func (w *world) Scale(context.Context, *autoscalingv2.HorizontalPodAutoscaler) (Target, plan.Scale, error) {
	return Target{scale: &autoscalingv1.Scale{}}, w.scale, w.missing
}

// Rescale implements Writer.
func (w *world) Rescale(_ context.Context, _ Target, replicas int32) error {
	if w.refused == nil {
		w.scale.Wanted, w.scale.Observed = replicas, replicas
		w.done = append(w.done, fmt.Sprint("scale ", replicas))
	}
	return w.refused
}

// UpdateStatus implements Writer.
func (w *world) UpdateStatus(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) error {
	if w.stale {
		return apierrors.NewConflict(autoscalingv2.Resource("horizontalpodautoscalers"), a.Name, nil)
	}
	w.done = append(w.done, "status")
	return w.client.Status().Update(ctx, a.DeepCopy())
}

// Read implements Metrics.
func (w *world) Read(context.Context, string, *autoscalingv2.MetricSpec, labels.Selector) plan.Reading {
	return plan.Reading{Milli: w.wish * 1000, Err: w.silent}
}

// Eventf implements Recorder.
func (w *world) Eventf(_ runtime.Object, _, reason, _ string, _ ...any) {
	w.done = append(w.done, reason)
}

// did tells what was done since the last time.
func (w *world) did() string {
	out := strings.Join(w.done, ", ")
	w.done = nil
	return out
}

// scaler wants a pod for each that an external metric counts.
func scaler(name string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Generation: 1},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: ptr.To[int32](1), MaxReplicas: 9,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: "queue"},
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType,
						AverageValue: ptr.To(resource.MustParse("1"))},
				},
			}}},
	}
}

func setup(objects ...client.Object) (*reconciler, *world, *testingclock.FakePassiveClock) {
	w := &world{scale: plan.Scale{Wanted: 2, Observed: 2, Selector: "app=web"}, wish: 2}
	w.client = crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithStatusSubresource(&autoscalingv2.HorizontalPodAutoscaler{}).WithObjects(objects...).Build()
	clock := testingclock.NewFakePassiveClock(noon)
	r, err := newReconciler(w.client, Config{Writer: w, Metrics: w, Events: w, Clock: clock})
	if err != nil {
		panic(err) // without a registerer it cannot be
	}
	return r, w, clock
}

func look(t *testing.T, r *reconciler, name string) {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns",
		Name: name}})
	if err != nil || result.RequeueAfter != plan.Resync {
		t.Fatalf("%+v, %v", result, err)
	}
}

// TestRounds: each round looks, changes and tells what is news.
func TestRounds(t *testing.T) {
	r, w, clock := setup(scaler("web"))
	step := func(what, want string) {
		t.Helper()
		look(t, r, "web")
		if got := w.did(); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
		clock.SetTime(clock.Now().Add(plan.Resync))
	}
	step("enough", "status")
	step("enough still", "")
	w.wish = 4
	step("more", "scale 4, SuccessfulRescale, status")
	w.wish = 1
	step("less, too soon", "status")
	clock.SetTime(clock.Now().Add(5 * time.Minute))
	w.refused = errors.New("no")
	step("less, refused", "FailedRescale, status")
	w.refused = nil
	step("less", "scale 1, SuccessfulRescale, status")
	w.missing = errors.New("it is gone")
	step("no target", "FailedGetScale, status")
	w.missing, w.stale = nil, true
	step("somebody was faster", "")
	w.stale, w.scale.Selector = false, ""
	step("no selector", "SelectorRequired, status")
}

// TestObserved: what is counted of turns and of metrics, and that nothing is left of who is gone.
func TestObserved(t *testing.T) {
	r, w, _ := setup(scaler("web"))
	all := prometheus.NewRegistry()
	var err error
	r.observed, err = newObserved(all)
	if err != nil {
		t.Fatal(err)
	}
	look(t, r, "web") // enough
	w.wish = 4
	look(t, r, "web") // more
	w.wish, w.refused = 9, errors.New("no")
	look(t, r, "web") // more, refused
	w.refused, w.silent = nil, errors.New("no answer")
	look(t, r, "web")
	w.scale.Selector = "" // for the owner of the target to mend
	look(t, r, "web")
	const prefix = "horizontal_pod_autoscaler_controller_"
	err = testutil.GatherAndCompare(all, strings.NewReader(`
# HELP `+prefix+`desired_replicas How many pods an autoscaler wants its target to have.
# TYPE `+prefix+`desired_replicas gauge
`+prefix+`desired_replicas{hpa_name="web",namespace="ns"} 4
# HELP `+prefix+`metric_computation_total Metrics that were asked how many pods there should be.
# TYPE `+prefix+`metric_computation_total counter
`+prefix+`metric_computation_total{action="none",error="internal",metric_type="External"} 1
`+prefix+`metric_computation_total{action="none",error="none",metric_type="External"} 1
`+prefix+`metric_computation_total{action="scale_up",error="none",metric_type="External"} 2
# HELP `+prefix+`num_horizontal_pod_autoscalers How many autoscalers are looked after.
# TYPE `+prefix+`num_horizontal_pod_autoscalers gauge
`+prefix+`num_horizontal_pod_autoscalers 1
# HELP `+prefix+`reconciliations_total Turns of looking after an autoscaler.
# TYPE `+prefix+`reconciliations_total counter
`+prefix+`reconciliations_total{action="none",error="internal"} 2
`+prefix+`reconciliations_total{action="none",error="none"} 1
`+prefix+`reconciliations_total{action="none",error="spec"} 1
`+prefix+`reconciliations_total{action="scale_up",error="none"} 1
`), prefix+"desired_replicas", prefix+"metric_computation_total", prefix+"num_horizontal_pod_autoscalers",
		prefix+"reconciliations_total")
	if err != nil {
		t.Error(err)
	}
	err = w.client.Delete(t.Context(), scaler("web"))
	if err != nil {
		t.Fatal(err)
	}
	gone := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}}
	_, err = r.Reconcile(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}
	if left := testutil.CollectAndCount(r.observed.desired); left != 0 || testutil.ToFloat64(r.observed.number) != 0 {
		t.Errorf("of an autoscaler that is gone %d metrics are left", left)
	}
}

// TestRivals: who counts the same pods as another autoscaler changes nothing, until the other is gone.
func TestRivals(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "web"}}}
	r, w, _ := setup(scaler("web"), scaler("other"), pod)
	look(t, r, "web")
	w.did()
	w.wish = 4
	look(t, r, "other")
	if got := w.did(); got != "AmbiguousSelector, status" {
		t.Errorf("got %s", got)
	}
	err := w.client.Delete(t.Context(), scaler("web"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}})
	if err != nil {
		t.Fatal(err)
	}
	look(t, r, "other")
	if got := w.did(); got != "scale 4, SuccessfulRescale, status" {
		t.Errorf("got %s", got)
	}
	if len(r.memories) != 1 {
		t.Errorf("remembered: %v", r.memories)
	}
}

// TestMetrics: which requests are made, and what is read from the answers.
func TestMetrics(t *testing.T) {
	var asked []string
	answers := map[string]string{
		"/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods?labelSelector=app%3Dweb": `{"items":[
			{"metadata":{"name":"a"},"timestamp":"2026-01-01T12:00:00Z","window":"10s","containers":[{"name":"x","usage":{"cpu":"1"}},{"name":"y","usage":{"cpu":"500m"}}]},
			{"metadata":{"name":"b"},"containers":[{"name":"x","usage":{"cpu":"2"}},{"name":"y","usage":{}}]}]}`,
		"/apis/custom.metrics.k8s.io": `{"preferredVersion":{"groupVersion":"custom.metrics.k8s.io/v1beta2","version":"v1beta2"}}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/*/hits?labelSelector=app%3Dweb&metricLabelSelector=verb%3DGET": `{"items":[
			{"describedObject":{"name":"a"},"windowSeconds":20,"timestamp":"2026-01-01T12:00:00Z","value":"7"}]}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/services/web/hits?metricLabelSelector=verb%3DGET": `{"items":[{"value":"8"}]}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/metrics/hits?metricLabelSelector=verb%3DGET":      `{"items":[{"value":"9"}]}`,
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/hits?labelSelector=verb%3DGET":                  `{"items":[{"value":"10"},{"value":"500m"}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		url := strings.TrimSuffix(r.URL.Path+"?"+r.URL.RawQuery, "?")
		asked = append(asked, url)
		answer, ok := answers[url]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	m := NewMetrics(kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}).Discovery().RESTClient(), mapper)
	id := autoscalingv2.MetricIdentifier{Name: "hits",
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"verb": "GET"}}}
	pods := labels.SelectorFromSet(labels.Set{"app": "web"})
	object := func(kind string) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Object: &autoscalingv2.ObjectMetricSource{
			Metric: id, DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: kind, Name: "web"},
		}}
	}
	at := plan.PodValue{Time: noon, Window: 10 * time.Second}
	value := func(milli int64, window time.Duration) plan.PodValue {
		v := at
		v.Milli, v.Window = milli, window
		return v
	}
	for name, c := range map[string]struct {
		spec  autoscalingv2.MetricSpec
		pods  map[string]plan.PodValue
		milli int64
		err   string
	}{
		"resource": {spec: autoscalingv2.MetricSpec{Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu"}},
			pods: map[string]plan.PodValue{"a": value(1500, 10*time.Second)}},
		"container": {spec: autoscalingv2.MetricSpec{ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Container: "x"}},
			pods: map[string]plan.PodValue{"a": value(1000, 10*time.Second), "b": {Milli: 2000}}},
		"no such container": {spec: autoscalingv2.MetricSpec{ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Container: "z"}},
			err: "container z not present in metrics for pods in namespace ns"},
		"pods": {spec: autoscalingv2.MetricSpec{Pods: &autoscalingv2.PodsMetricSource{Metric: id}},
			pods: map[string]plan.PodValue{"a": value(7000, 20*time.Second)}},
		"object":    {spec: object("Service"), milli: 8000},
		"namespace": {spec: object("Namespace"), milli: 9000},
		"unknown":   {spec: object("Gadget"), err: "no matches for /, Resource=Gadget"},
		"external": {spec: autoscalingv2.MetricSpec{External: &autoscalingv2.ExternalMetricSource{Metric: id}},
			milli: 10_500},
		"not there": {spec: autoscalingv2.MetricSpec{External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "x"}}},
			err: "unable to get external metric ns/x/<none>: the server could not find the requested resource"},
	} {
		got := m.Read(t.Context(), "ns", &c.spec, pods)
		if c.err != "" {
			if got.Err == nil || !strings.Contains(got.Err.Error(), c.err) {
				t.Errorf("%s: got %v, want %s", name, got.Err, c.err)
			}
			continue
		}
		same := len(got.Pods) == len(c.pods) && got.Err == nil && got.Milli == c.milli
		for pod, v := range c.pods {
			same = same && got.Pods[pod].Milli == v.Milli && got.Pods[pod].Window == v.Window && got.Pods[pod].Time.Equal(v.Time)
		}
		if !same {
			t.Errorf("%s: got %+v, want %v %d", name, got, c.pods, c.milli)
		}
	}
	for path := range answers {
		if !slices.Contains(asked, path) {
			t.Errorf("nobody asked for %s; asked: %v", path, asked)
		}
	}
}
