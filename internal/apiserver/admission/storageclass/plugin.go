// Package storageclass gives new claims that name no class the one that is marked as the default.
package storageclass

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/internal/volume"
)

// Classes reads classes; a lister of client-go is one.
type Classes interface {
	List(selector labels.Selector) ([]*storagev1.StorageClass, error)
}

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	classes Classes
}

var _ admission.MutationInterface = &Plugin{}

// New makes the plugin. New claims without a class wait until synced reports that classes can be read.
func New(classes Classes, synced func() bool) *Plugin {
	p := &Plugin{Handler: admission.NewHandler(admission.Create), classes: classes}
	p.SetReadyFunc(synced)
	return p
}

// Admit implements admission.MutationInterface.
func (p *Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("persistentvolumeclaims") || a.GetSubresource() != "" {
		return nil
	}
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a PersistentVolumeClaim but got a %T", a.GetObject()))
	}
	if volume.HasClass(claim) {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	all, err := p.classes.List(labels.Everything())
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("list StorageClasses: %w", err))
	}
	if class := volume.DefaultClass(all); class != nil {
		claim.Spec.StorageClassName = &class.Name
	}
	return nil
}
