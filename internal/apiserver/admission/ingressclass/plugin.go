// Package ingressclass gives new Ingresses that name no class the one that is marked as the default.
package ingressclass

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/internal/apiserver/admission/defaultclass"
	"github.com/everynode/everynode/internal/objects/class"
)

// classAnnotation is how an Ingress named its class before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

// Classes reads classes; a lister of client-go is one.
type Classes = defaultclass.Classes[*networkingv1.IngressClass]

var rules = defaultclass.Rules[*networkingv1.Ingress, *networkingv1.IngressClass]{
	Resource: networkingv1.Resource("ingresses"), Expected: "an Ingress", ClassKind: "IngressClasses",
	Named: func(i *networkingv1.Ingress) bool {
		_, old := i.Annotations[classAnnotation]
		return old || i.Spec.IngressClassName != nil
	},
	Default: func(all []*networkingv1.IngressClass) *networkingv1.IngressClass {
		return class.Default(all, func(c *networkingv1.IngressClass) bool {
			return c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
		})
	},
	Set: func(i *networkingv1.Ingress, name string) { i.Spec.IngressClassName = &name },
}

// New makes the plugin. New Ingresses without a class wait until synced reports that classes can be read.
func New(classes Classes, synced func() bool) admission.MutationInterface {
	return defaultclass.New(rules, classes, synced)
}
