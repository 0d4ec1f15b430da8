// Package ingressclass gives new Ingresses that name no class the one that is marked as the default.
package ingressclass

import (
	"context"
	"errors"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
)

// classAnnotation is how an Ingress named its class before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

// Classes reads classes; a lister of client-go is one.
type Classes interface {
	List(selector labels.Selector) ([]*networkingv1.IngressClass, error)
}

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	classes Classes
}

var _ admission.MutationInterface = &Plugin{}

// New makes the plugin. New Ingresses without a class wait until synced reports that classes can be read.
func New(classes Classes, synced func() bool) *Plugin {
	p := &Plugin{Handler: admission.NewHandler(admission.Create), classes: classes}
	p.SetReadyFunc(synced)
	return p
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != networkingv1.Resource("ingresses") || a.GetSubresource() != "" {
		return nil
	}
	ingress, ok := a.GetObject().(*networkingv1.Ingress)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected an Ingress but got a %T", a.GetObject()))
	}
	if _, old := ingress.Annotations[classAnnotation]; old || ingress.Spec.IngressClassName != nil {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	all, err := p.classes.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("list IngressClasses: %w", err))
	}
	if class := standard(all); class != nil {
		ingress.Spec.IngressClassName = &class.Name
	}
	return nil
}

// standard is the default class: the newest, if there are several, and of those made at once the first by name.
func standard(all []*networkingv1.IngressClass) (found *networkingv1.IngressClass) {
	for _, c := range all {
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true" {
			continue
		}
		if found == nil || found.CreationTimestamp.Before(&c.CreationTimestamp) || found.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < found.Name {
			found = c
		}
	}
	return found
}
