package quota

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func evaluator(of string, objects ...runtime.Object) quota.Evaluator {
	list := func(schema.GroupResource) generic.ListFuncByNamespace {
		return func(string) ([]runtime.Object, error) { return objects, nil }
	}
	return generic.NewRegistry(Evaluators(list, func() time.Time { return noon })).Get(schema.ParseGroupResource(of))
}

func aPod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: amounts("cpu", "1", "memory", "1Gi", "example.com/gpu", "2", "hugepages-2Mi", "4Mi"), Limits: amounts("cpu", "2", "example.com/gpu", "2", "hugepages-2Mi", "4Mi")}}}}}
	if change != nil {
		change(p)
	}
	return p
}

func text(list corev1.ResourceList) string {
	var out []string
	for name, amount := range list {
		if !amount.IsZero() {
			out = append(out, fmt.Sprint(name, "=", amount.String()))
		}
	}
	return strings.Join(sorted(out), " ")
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func TestUsageOfPods(t *testing.T) {
	const whole = "count/pods=1 cpu=1 hugepages-2Mi=4Mi limits.cpu=2 memory=1Gi pods=1 requests.cpu=1 requests.example.com/gpu=2 requests.hugepages-2Mi=4Mi requests.memory=1Gi"
	left := func(ago time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: noon.Add(-ago)}, new(int64(30))
		}
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"runs":      {nil, whole},
		"has ended": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "count/pods=1"},
		"leaves":    {left(29 * time.Second), whole},
		"is stuck":  {left(31 * time.Second), "count/pods=1"},
		"gives back CPU that its node has not taken yet": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, AllocatedResources: amounts("cpu", "3"),
				Resources: &corev1.ResourceRequirements{Requests: amounts("cpu", "3"), Limits: amounts("cpu", "4")}}}
		}, strings.NewReplacer("requests.cpu=1", "requests.cpu=3", "limits.cpu=2", "limits.cpu=4", "cpu=1", "cpu=3").Replace(whole)},
		"overhead": {func(p *corev1.Pod) { p.Spec.Overhead = amounts("cpu", "1") }, strings.NewReplacer("cpu=1", "cpu=2", "limits.cpu=2", "limits.cpu=3").Replace(whole)},
	} {
		got, err := evaluator("pods").Usage(aPod(c.change))
		if err != nil || text(got) != c.want {
			t.Errorf("a pod that %s: %s, %v, want %s", name, text(got), err, c.want)
		}
	}
}

func TestScopesOfPods(t *testing.T) {
	best := func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }
	ends := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(5)) }
	class := func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }
	crosses := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{PodAffinityTerm: corev1.PodAffinityTerm{Namespaces: []string{"other"}}}}}}
	}
	for _, c := range []struct {
		scope    corev1.ResourceQuotaScope
		operator corev1.ScopeSelectorOperator
		values   []string
		change   func(*corev1.Pod)
		want     bool
	}{
		{"BestEffort", "Exists", nil, best, true}, {"BestEffort", "Exists", nil, nil, false},
		{"NotBestEffort", "Exists", nil, best, false}, {"NotBestEffort", "Exists", nil, nil, true},
		{"Terminating", "Exists", nil, ends, true}, {"Terminating", "Exists", nil, nil, false},
		{"NotTerminating", "Exists", nil, ends, false}, {"NotTerminating", "Exists", nil, nil, true},
		{"PriorityClass", "Exists", nil, class, true}, {"PriorityClass", "Exists", nil, nil, false}, {"PriorityClass", "DoesNotExist", nil, nil, true},
		{"PriorityClass", "In", []string{"high", "low"}, class, true}, {"PriorityClass", "In", []string{"low"}, class, false},
		{"PriorityClass", "NotIn", []string{"low"}, class, true}, {"PriorityClass", "NotIn", []string{"high"}, class, false},
		{"CrossNamespacePodAffinity", "Exists", nil, crosses, true}, {"CrossNamespacePodAffinity", "Exists", nil, nil, false},
		{"VolumeAttributesClass", "Exists", nil, nil, false},
	} {
		q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: c.scope, Operator: c.operator, Values: c.values}}}}, Status: corev1.ResourceQuotaStatus{Hard: amounts("pods", "1")}}
		got, err := evaluator("pods").Matches(q, aPod(c.change))
		if err != nil || got != c.want {
			t.Errorf("%s %s %v: %v, %v", c.scope, c.operator, c.values, got, err)
		}
	}
}

func TestWhatContainersMustSay(t *testing.T) {
	required := []corev1.ResourceName{"cpu", "limits.memory", "pods", "requests.ephemeral-storage"}
	pods := evaluator("pods")
	err := pods.Constraints(required, aPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
	}))
	if fmt.Sprint(err) != "must specify cpu for: i; limits.memory for: c,i" {
		t.Errorf("got %v", err)
	}
	if err := pods.Constraints(required, aPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu", "1"), Limits: amounts("memory", "1Gi")}
	})); err != nil {
		t.Errorf("what the pod as a whole says: %v", err)
	}
}

func TestUsageOfServices(t *testing.T) {
	ports := []corev1.ServicePort{{Port: 1, NodePort: 30000}, {Port: 2}}
	for want, spec := range map[string]corev1.ServiceSpec{
		"count/services=1 services=1":                                               {Type: "ClusterIP", Ports: ports},
		"count/services=1 services.nodeports=2 services=1":                          {Type: "NodePort", Ports: ports},
		"count/services=1 services.loadbalancers=1 services.nodeports=2 services=1": {Type: "LoadBalancer", Ports: ports},
		"count/services=1 services.loadbalancers=1 services.nodeports=1 services=1": {Type: "LoadBalancer", Ports: ports, AllocateLoadBalancerNodePorts: new(false)},
	} {
		got, err := evaluator("services").Usage(&corev1.Service{Spec: spec})
		if err != nil || text(got) != want {
			t.Errorf("%s: %s, %v, want %s", spec.Type, text(got), err, want)
		}
	}
}

func TestUsageOfClaims(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Spec.Resources.Requests = amounts("storage", "2Gi")
	e := evaluator("persistentvolumeclaims")
	if got, err := e.Usage(claim); err != nil || text(got) != "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2Gi" {
		t.Errorf("%s, %v", text(got), err)
	}
	claim.Spec.StorageClassName = new("fast")
	claim.Status.AllocatedResources = amounts("storage", "3Gi")
	const want = "count/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/requests.storage=3Gi persistentvolumeclaims=1 requests.storage=3Gi"
	if got, err := e.Usage(claim); err != nil || text(got) != want {
		t.Errorf("%s, %v", text(got), err)
	}
	asked := []corev1.ResourceName{"pods", "requests.storage", "fast.storageclass.storage.k8s.io/requests.storage", "fast.storageclass.storage.k8s.io/other"}
	if got := fmt.Sprint(e.MatchingResources(asked)); got != "[requests.storage fast.storageclass.storage.k8s.io/requests.storage]" {
		t.Error(got)
	}
}

func TestUsageOfDeviceClaims(t *testing.T) {
	e := evaluator("resourceclaims.resource.k8s.io")
	if e == nil {
		t.Fatal("nobody counts devices")
	}
	type request = resourcev1.DeviceRequest
	exactly := func(class string, mode resourcev1.DeviceAllocationMode, n int64) request {
		return request{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: n}}
	}
	sub := func(class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceSubRequest {
		return resourcev1.DeviceSubRequest{DeviceClassName: class, AllocationMode: mode, Count: n}
	}
	const one, dot = "count/resourceclaims.resource.k8s.io=1", corev1.ResourceClaimsPerClass
	for want, requests := range map[string][]request{
		one:                       nil,
		one + " gpu" + dot + "=5": {exactly("gpu", "ExactCount", 2), exactly("gpu", "ExactCount", 3)},
		one + " gpu" + dot + "=32 nic" + dot + "=1":    {exactly("gpu", "All", 0), exactly("nic", "ExactCount", 1)},
		one + " gpu" + dot + "=7 old-gpu" + dot + "=8": {{FirstAvailable: []resourcev1.DeviceSubRequest{sub("gpu", "ExactCount", 4), sub("gpu", "ExactCount", 2), sub("old-gpu", "ExactCount", 8)}}, exactly("gpu", "ExactCount", 3)},
		one + " gpu" + dot + "=18446744073709551614":   {exactly("gpu", "ExactCount", math.MaxInt64), exactly("gpu", "ExactCount", math.MaxInt64)},
		one + " nic" + dot + "=32":                     {{FirstAvailable: []resourcev1.DeviceSubRequest{sub("nic", "ExactCount", 1), sub("nic", "All", 0)}}},
	} {
		claim := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: requests}}}
		if got, err := e.Usage(claim); err != nil || text(got) != want {
			t.Errorf("%s, %v, want %s", text(got), err, want)
		}
	}
	asked := []corev1.ResourceName{"pods", "count/resourceclaims.resource.k8s.io", corev1.ResourceName("gpu" + dot), "fast.storageclass.storage.k8s.io/requests.storage"}
	if got := fmt.Sprint(e.MatchingResources(asked)); got != "[count/resourceclaims.resource.k8s.io gpu"+dot+"]" {
		t.Error(got)
	}
}

// A namespace is the sum of its objects that are in scope.
func TestSums(t *testing.T) {
	list := func(schema.GroupResource) generic.ListFuncByNamespace {
		return func(string) ([]runtime.Object, error) {
			return []runtime.Object{aPod(nil), aPod(nil), aPod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(5)) })}, nil
		}
	}
	registry := generic.NewRegistry(Evaluators(list, func() time.Time { return noon })[:1])
	got, err := quota.CalculateUsage("ns", []corev1.ResourceQuotaScope{"NotTerminating"}, amounts("cpu", "9", "pods", "9", "requests.example.com/gpu", "9", "services", "9"), registry, nil)
	if err != nil || text(got) != "cpu=2 pods=2 requests.example.com/gpu=4" {
		t.Errorf("%s, %v", text(got), err)
	}
}

func TestWhichWritesAreCharged(t *testing.T) {
	for _, c := range []struct {
		of, sub   string
		operation admission.Operation
		want      bool
	}{
		{"pods", "", admission.Create, true}, {"pods", "", admission.Update, false}, {"pods", "status", admission.Update, false}, {"pods", "eviction", admission.Create, false},
		{"services", "", admission.Create, true}, {"services", "", admission.Update, true}, {"services", "status", admission.Update, false},
		{"persistentvolumeclaims", "", admission.Create, true}, {"persistentvolumeclaims", "", admission.Update, true}, {"persistentvolumeclaims", "status", admission.Update, false},
		{"secrets", "", admission.Create, true}, {"secrets", "", admission.Update, false},
	} {
		a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "ns", "a", corev1.SchemeGroupVersion.WithResource(c.of), c.sub, c.operation, nil, false, nil)
		if got := evaluator(c.of).Handles(a); got != c.want {
			t.Errorf("%s %s/%s: %v", c.operation, c.of, c.sub, got)
		}
	}
}
