package priority

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"
)

func class(name string, value int32, isDefault bool, policy corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
	c := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
	if policy != "" {
		c.PreemptionPolicy = &policy
	}
	return c
}

func pluginWith(t *testing.T, classes ...*schedulingv1.PriorityClass) *Plugin {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, c := range classes {
		if err := indexer.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	return New(schedulinglisters.NewPriorityClassLister(indexer), func() bool { return true })
}

func attributes(obj, old runtime.Object, resource string, operation admission.Operation) admission.Attributes {
	gvr := corev1.SchemeGroupVersion.WithResource(resource)
	if resource == "priorityclasses" {
		gvr = schedulingv1.SchemeGroupVersion.WithResource(resource)
	}
	return admission.NewAttributesRecord(obj, old, corev1.SchemeGroupVersion.WithKind("X"), "ns", "p", gvr, "", operation, nil, false, nil)
}

func TestPodGetsItsPriority(t *testing.T) {
	classes := []*schedulingv1.PriorityClass{class("high", 100, false, ""), class("polite", 50, false, corev1.PreemptNever), class("system-node-critical", 2000001000, false, "")}
	withDefault := append([]*schedulingv1.PriorityClass{class("b", 7, true, ""), class("a", 9, true, "")}, classes...)
	mirror := map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	cases := []struct {
		name      string
		classes   []*schedulingv1.PriorityClass
		spec      corev1.PodSpec
		notes     map[string]string
		className string
		value     int32
		policy    corev1.PreemptionPolicy
		says      string
	}{
		{"none", classes, corev1.PodSpec{}, nil, "", 0, "PreemptLowerPriority", ""},
		{"lowest default", withDefault, corev1.PodSpec{}, nil, "b", 7, "PreemptLowerPriority", ""},
		{"named", withDefault, corev1.PodSpec{PriorityClassName: "high"}, nil, "high", 100, "PreemptLowerPriority", ""},
		{"polite", classes, corev1.PodSpec{PriorityClassName: "polite"}, nil, "polite", 50, "Never", ""},
		{"same number", classes, corev1.PodSpec{PriorityClassName: "high", Priority: new(int32(100))}, nil, "high", 100, "PreemptLowerPriority", ""},
		{"another number", classes, corev1.PodSpec{PriorityClassName: "high", Priority: new(int32(101))}, nil, "", 0, "", "the integer value of priority (101) must not be provided in pod spec"},
		{"a number out of nothing", classes, corev1.PodSpec{Priority: new(int32(2000001000))}, nil, "", 0, "", "computed 0 from the given PriorityClass name"},
		{"another policy", classes, corev1.PodSpec{PriorityClassName: "polite", PreemptionPolicy: new(corev1.PreemptLowerPriority)}, nil, "", 0, "", "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided"},
		{"unknown", classes, corev1.PodSpec{PriorityClassName: "nope"}, nil, "", 0, "", "no PriorityClass with name nope was found"},
		{"mirror of a static pod", classes, corev1.PodSpec{Priority: new(int32(2000001000))}, mirror, "system-node-critical", 2000001000, "PreemptLowerPriority", ""},
	}
	for _, c := range cases {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.notes}, Spec: c.spec}
		err := pluginWith(t, c.classes...).Admit(t.Context(), attributes(pod, nil, "pods", admission.Create), nil)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", c.name, err, c.says)
			}
			continue
		}
		s := pod.Spec
		if err != nil || s.PriorityClassName != c.className || s.Priority == nil || *s.Priority != c.value || *s.PreemptionPolicy != c.policy {
			t.Errorf("%s: %q %v %v, %v", c.name, s.PriorityClassName, s.Priority, s.PreemptionPolicy, err)
		}
	}
}

func TestUpdateKeepsThePriority(t *testing.T) {
	old := &corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(5)), PreemptionPolicy: new(corev1.PreemptNever)}}
	pod := &corev1.Pod{}
	err := pluginWith(t, class("d", 9, true, "")).Admit(t.Context(), attributes(pod, old, "pods", admission.Update), nil)
	if err != nil || *pod.Spec.Priority != 5 || *pod.Spec.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("%v %v, %v", pod.Spec.Priority, pod.Spec.PreemptionPolicy, err)
	}
}

func TestOneDefaultClassOnly(t *testing.T) {
	plugin := pluginWith(t, class("d", 9, true, ""))
	cases := []struct {
		obj       *schedulingv1.PriorityClass
		operation admission.Operation
		ok        bool
	}{
		{class("e", 1, true, ""), admission.Create, false},
		{class("e", 1, true, ""), admission.Update, false},
		{class("d", 9, true, ""), admission.Update, true},
		{class("e", 1, false, ""), admission.Create, true},
	}
	for _, c := range cases {
		err := plugin.Validate(t.Context(), attributes(c.obj, nil, "priorityclasses", c.operation), nil)
		if (err == nil) != c.ok || (err != nil && !strings.Contains(err.Error(), "PriorityClass d is already marked as default. Only one default can exist")) {
			t.Errorf("%s %s: %v, want accepted %v", c.operation, c.obj.Name, err, c.ok)
		}
	}
}
