package ingressclass

import (
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

type classes []*networkingv1.IngressClass

// List implements Classes.
func (c classes) List(labels.Selector) ([]*networkingv1.IngressClass, error) { return c, nil }

func classOf(name, standard string, age time.Duration) *networkingv1.IngressClass {
	return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
		Annotations: map[string]string{networkingv1.AnnotationIsDefaultIngressClass: standard}}}
}

func TestDefaultClass(t *testing.T) {
	old, young, twin, other := classOf("old", "true", time.Hour), classOf("young", "true", 0), classOf("yours", "true", 0), classOf("other", "false", 0)
	for name, c := range map[string]struct {
		classes classes
		change  func(*networkingv1.Ingress)
		want    string
	}{
		"none":              {classes{other}, nil, ""},
		"one":               {classes{other, old}, nil, "old"},
		"the newest":        {classes{old, twin, young, other}, nil, "young"},
		"it names another":  {classes{old}, func(i *networkingv1.Ingress) { i.Spec.IngressClassName = ptr.To("mine") }, "mine"},
		"it names none":     {classes{old}, func(i *networkingv1.Ingress) { i.Spec.IngressClassName = ptr.To("") }, ""},
		"by the annotation": {classes{old}, func(i *networkingv1.Ingress) { i.Annotations = map[string]string{classAnnotation: "x"} }, ""},
	} {
		i := &networkingv1.Ingress{}
		if c.change != nil {
			c.change(i)
		}
		a := admission.NewAttributesRecord(i, nil, networkingv1.SchemeGroupVersion.WithKind("Ingress"), "ns", "i", networkingv1.SchemeGroupVersion.WithResource("ingresses"), "", admission.Create, nil, false, nil)
		if err := New(c.classes, func() bool { return true }).Admit(t.Context(), a, nil); err != nil || ptr.Deref(i.Spec.IngressClassName, "") != c.want {
			t.Errorf("%s: %v, %v", name, ptr.Deref(i.Spec.IngressClassName, ""), err)
		}
	}
}
