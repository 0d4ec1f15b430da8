package limitrange

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func plugin(t *testing.T, items ...corev1.LimitRangeItem) *Plugin {
	t.Helper()
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := known.Add(&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: items}}); err != nil {
		t.Fatal(err)
	}
	return New(corev1listers.NewLimitRangeLister(known), func() bool { return true })
}

func write(operation admission.Operation, namespace, resource, sub string, obj, old runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(obj, old, corev1.SchemeGroupVersion.WithKind("X"), namespace, "x", corev1.SchemeGroupVersion.WithResource(resource), sub, operation, nil, false, nil)
}

func pod(requests, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}}}
}

func TestContainersGetWhatTheyDoNotSay(t *testing.T) {
	p := plugin(t, corev1.LimitRangeItem{Type: "Container", DefaultRequest: amounts("cpu", "100m", "memory", "1Gi"), Default: amounts("cpu", "200m", "memory", "2Gi")})
	got := pod(amounts("cpu", "150m"), nil)
	got.Spec.InitContainers = []corev1.Container{{Name: "i"}}
	if err := p.Admit(t.Context(), write(admission.Create, "ns", "pods", "", got, nil), nil); err != nil {
		t.Fatal(err)
	}
	r, i := got.Spec.Containers[0].Resources, got.Spec.InitContainers[0].Resources
	if text := fmt.Sprint(r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory(), i.Requests.Cpu(), i.Limits.Cpu()); text != "150m 1Gi 200m 2Gi 100m 200m" {
		t.Errorf("the pod has %s", text)
	}
	const note = "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c; cpu, memory request for init container i; cpu, memory limit for init container i"
	if got.Annotations[annotation] != note {
		t.Errorf("the note is %q", got.Annotations[annotation])
	}
	for name, a := range map[string]admission.Attributes{
		"elsewhere": write(admission.Create, "other", "pods", "", pod(nil, nil), nil), "a change": write(admission.Update, "ns", "pods", "", pod(nil, nil), pod(nil, nil)),
		"a status": write(admission.Update, "ns", "pods", "status", pod(nil, nil), pod(nil, nil)),
	} {
		if err := p.Admit(t.Context(), a, nil); err != nil || len(a.GetObject().(*corev1.Pod).Spec.Containers[0].Resources.Limits) > 0 {
			t.Errorf("%s: %v, %v", name, err, a.GetObject())
		}
	}
}

func TestBounds(t *testing.T) {
	for want, c := range map[string]struct {
		item             corev1.LimitRangeItem
		requests, limits corev1.ResourceList
	}{
		"minimum cpu usage per Container is 1.  No request is specified": {corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu", "1")}, nil, nil},
		"minimum cpu usage per Container is 1, but request is 500m":      {corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu", "1")}, amounts("cpu", "500m"), nil},
		"minimum cpu usage per Container is 1, but limit is 600m":        {corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu", "1")}, amounts("cpu", "1"), amounts("cpu", "600m")},
		"maximum memory usage per Pod is 1Gi.  No limit is specified":    {corev1.LimitRangeItem{Type: "Pod", Max: amounts("memory", "1Gi")}, nil, nil},
		"maximum memory usage per Pod is 1Gi, but limit is 2Gi":          {corev1.LimitRangeItem{Type: "Pod", Max: amounts("memory", "1Gi")}, nil, amounts("memory", "2Gi")},
		"maximum cpu usage per Container is 1, but request is 2":         {corev1.LimitRangeItem{Type: "Container", Max: amounts("cpu", "1")}, amounts("cpu", "2"), amounts("cpu", "1")},
		"cpu max limit to request ratio per Container is 2, but no request is specified or request is 0": {
			corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: amounts("cpu", "2")}, nil, amounts("cpu", "1")},
		"cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0": {
			corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: amounts("cpu", "2")}, amounts("cpu", "1"), nil},
		"cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000": {
			corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: amounts("cpu", "2")}, amounts("cpu", "100m"), amounts("cpu", "300m")},
		"": {corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu", "1"), Max: amounts("cpu", "2"), MaxLimitRequestRatio: amounts("cpu", "2")}, amounts("cpu", "1"), amounts("cpu", "2")},
	} {
		err := plugin(t, c.item).Validate(t.Context(), write(admission.Create, "ns", "pods", "", pod(c.requests, c.limits), nil), nil)
		if want == "" && err != nil || want != "" && (!apierrors.IsForbidden(err) || err.Error() != `pods "x" is forbidden: `+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A pod is held against its limits when it is made and when it is resized, and not when something else of it is written.
func TestWhichWritesOfPodsAreChecked(t *testing.T) {
	p := plugin(t, corev1.LimitRangeItem{Type: "Container", Max: amounts("cpu", "1")})
	large := pod(amounts("cpu", "2"), amounts("cpu", "2"))
	for _, c := range []struct {
		operation admission.Operation
		sub       string
		refused   bool
	}{{admission.Create, "", true}, {admission.Update, "resize", true}, {admission.Update, "", false}, {admission.Update, "status", false}, {admission.Create, "binding", false}} {
		if err := p.Validate(t.Context(), write(c.operation, "ns", "pods", c.sub, large, pod(nil, nil)), nil); apierrors.IsForbidden(err) != c.refused {
			t.Errorf("%s of pods/%s: %v", c.operation, c.sub, err)
		}
	}
}

func TestClaims(t *testing.T) {
	p := plugin(t, corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Min: amounts("storage", "1Gi"), Max: amounts("storage", "2Gi")})
	for size, want := range map[string]string{"1Gi": "", "3Gi": "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi", "1Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"} {
		claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", size)}}}
		err := p.Validate(t.Context(), write(admission.Update, "ns", "persistentvolumeclaims", "", claim, claim), nil)
		if want == "" && err != nil || want != "" && fmt.Sprint(err) != `persistentvolumeclaims "x" is forbidden: `+want {
			t.Errorf("%s: %v, want %s", size, err, want)
		}
		leaves := claim.DeepCopy()
		leaves.DeletionTimestamp = &metav1.Time{}
		if err := p.Validate(t.Context(), write(admission.Update, "ns", "persistentvolumeclaims", "", claim, leaves), nil); err != nil {
			t.Errorf("one that leaves: %v", err)
		}
	}
}
