package podtopologylabels

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

func node(_ context.Context, name string) (*corev1.Node, error) {
	switch name {
	case "there":
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
			"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "disk": "ssd",
		}}}, nil
	case "nowhere":
		return &corev1.Node{}, nil
	case "broken":
		return nil, errors.New("no")
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// TestLabels: who gets which labels.
func TestLabels(t *testing.T) {
	const both = "map[topology.kubernetes.io/region:r topology.kubernetes.io/zone:z]"
	bound := func(kind, name string) *corev1.Binding {
		return &corev1.Binding{Target: corev1.ObjectReference{Kind: kind, Name: name}}
	}
	on := func(name string) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: name}} }
	for name, c := range map[string]struct {
		object                runtime.Object
		resource, subresource string
		want                  string
	}{
		"bound":                     {bound("Node", "there"), "pods", "binding", both},
		"bound without a kind":      {bound("", "there"), "pods", "binding", both},
		"bound by the old way":      {bound("Node", "there"), "bindings", "", both},
		"bound to what is no node":  {bound("Pod", "there"), "pods", "binding", "map[]"},
		"bound to a node elsewhere": {bound("Node", "nowhere"), "pods", "binding", "map[]"},
		"bound to no node":          {bound("Node", "missing"), "pods", "binding", "map[]"},
		"made for a node":           {on("there"), "pods", "", both},
		"made for no node":          {on(""), "pods", "", "map[]"},
		"part of a pod":             {on("there"), "pods", "resize", "map[]"},
		"what is no pod":            {on("there"), "podtemplates", "", "map[]"},
		"cannot be told":            {on("broken"), "pods", "", "read where node broken is: no"},
	} {
		a := admission.NewAttributesRecord(c.object, nil, corev1.SchemeGroupVersion.WithKind("X"), "ns", "p",
			corev1.SchemeGroupVersion.WithResource(c.resource), c.subresource, admission.Create, nil, false, nil)
		err := New(node).Admit(t.Context(), a, nil)
		got := fmt.Sprint(c.object.(metav1.Object).GetLabels())
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// TestOthersStay: labels of the same keys give way, all others stay, and the map that was given is not written to.
func TestOthersStay(t *testing.T) {
	given := map[string]string{"app": "a", "topology.kubernetes.io/zone": "elsewhere"}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: given}, Spec: corev1.PodSpec{NodeName: "there"}}
	a := admission.NewAttributesRecord(p, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil)
	err := New(node).Admit(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.Labels); got != "map[app:a topology.kubernetes.io/region:r topology.kubernetes.io/zone:z]" {
		t.Errorf("the labels are %s", got)
	}
	if given["topology.kubernetes.io/zone"] != "elsewhere" {
		t.Error("the map that was given was written to")
	}
}
