package runtimeclass

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

type classes map[string]*nodev1.RuntimeClass

// Get implements Known.
func (c classes) Get(name string) (*nodev1.RuntimeClass, error) {
	if class, ok := c[name]; ok {
		return class, nil
	}
	return nil, apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), name)
}

type live struct{ classes }

// Get implements Live.
func (l live) Get(_ context.Context, name string, _ metav1.GetOptions) (*nodev1.RuntimeClass, error) {
	return l.classes.Get(name)
}

func amounts(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

func create(pod *corev1.Pod) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p", corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil)
}

func TestClass(t *testing.T) {
	vm := &nodev1.RuntimeClass{Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: amounts("250m")}, Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "vm", Operator: "Exists"}, {Key: "own", Operator: "Exists"}}}}
	p := New(classes{"vm": vm, "plain": {Handler: "runc"}}, live{classes{"young": vm}}, func() bool { return true })
	for name, c := range map[string]struct {
		class    *string
		change   func(*corev1.PodSpec)
		want     string
		overhead string
	}{
		"no class":          {overhead: "0"},
		"a class":           {class: new("vm"), overhead: "250m"},
		"one of just now":   {class: new("young"), overhead: "250m"},
		"one without costs": {class: new("plain"), overhead: "0"},
		"an unknown one":    {class: new("x"), want: `pod rejected: RuntimeClass "x" not found`},
		"costs given too":   {class: new("vm"), change: func(s *corev1.PodSpec) { s.Overhead = amounts("0.25") }, overhead: "250m"},
		"other costs":       {class: new("vm"), change: func(s *corev1.PodSpec) { s.Overhead = amounts("1") }, want: "Pod's Overhead doesn't match RuntimeClass's defined Overhead"},
		"costs alone":       {change: func(s *corev1.PodSpec) { s.Overhead = amounts("1") }, want: "Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		"another selector": {class: new("vm"), change: func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"vm": "no"} },
			want: "conflict: runtimeClass.Scheduling.NodeSelector[vm] = yes; pod.Spec.NodeSelector[vm] = no"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: c.class, Tolerations: []corev1.Toleration{{Key: "own", Operator: "Exists"}}}}
		if c.change != nil {
			c.change(&pod.Spec)
		}
		err := p.Admit(t.Context(), create(pod), nil)
		if err == nil {
			err = p.Validate(t.Context(), create(pod), nil)
		}
		if c.want != "" {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			continue
		}
		if err != nil || pod.Spec.Overhead.Cpu().String() != c.overhead {
			t.Errorf("%s: %v, overhead %v", name, err, pod.Spec.Overhead)
		}
		want := "map[] 1"
		if c.overhead != "0" {
			want = "map[vm:yes] 2"
		}
		if got := fmt.Sprint(pod.Spec.NodeSelector, len(pod.Spec.Tolerations)); got != want {
			t.Errorf("%s: selector and tolerations are %s, want %s", name, got, want)
		}
	}
}

// What a mutating webhook makes of a pod is checked too.
func TestCostsAreChecked(t *testing.T) {
	p := New(classes{"vm": {Overhead: &nodev1.Overhead{PodFixed: amounts("250m")}}}, live{}, func() bool { return true })
	pod := &corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: new("vm")}}
	if err := p.Validate(t.Context(), create(pod), nil); !apierrors.IsForbidden(err) {
		t.Errorf("a pod without its class's overhead: %v", err)
	}
	if err := p.Validate(t.Context(), create(&corev1.Pod{Spec: corev1.PodSpec{Overhead: amounts("1")}}), nil); !apierrors.IsForbidden(err) {
		t.Errorf("a pod with an overhead of its own: %v", err)
	}
}
