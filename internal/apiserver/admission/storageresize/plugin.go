// Package storageresize lets a claim ask for more only if its class says that its volumes can grow. Without it a quota
// would be used for room that nobody ever gets.
package storageresize

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/volume"
)

// Classes reads a class; a lister of client-go is one.
type Classes interface {
	Get(name string) (*storagev1.StorageClass, error)
}

// Plugin is the admission plugin.
type Plugin struct {
	*admission.Handler
	classes Classes
}

var _ admission.ValidationInterface = &Plugin{}

// New makes the plugin. Claims that ask for more wait until synced reports that classes can be read.
func New(classes Classes, synced func() bool) *Plugin {
	p := &Plugin{Handler: admission.NewHandler(admission.Update), classes: classes}
	p.SetReadyFunc(synced)
	return p
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("persistentvolumeclaims") || a.GetSubresource() != "" {
		return nil
	}
	claim, ok := a.GetObject().(*corev1.PersistentVolumeClaim)
	old, okOld := a.GetOldObject().(*corev1.PersistentVolumeClaim)
	if !ok || !okOld {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a PersistentVolumeClaim but got a %T", a.GetObject()))
	}
	if claim.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) <= 0 {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		//nolint:staticcheck // as kube-apiserver says it
		return admission.NewForbidden(a, errors.New("Only bound persistent volume claims can be expanded"))
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("not yet ready to handle request"))
	}
	if !p.grows(volume.ClaimClass(claim), volume.ClaimClass(old)) {
		return admission.NewForbidden(a, errors.New("only dynamically provisioned pvc can be resized and the storageclass "+
			"that provisions the pvc must support resize"))
	}
	return nil
}

// grows says whether the class of a claim, which has not changed, lets its volumes grow.
func (p *Plugin) grows(name, old string) bool {
	if name == "" || name != old {
		return false
	}
	class, err := p.classes.Get(name)
	return err == nil && ptr.Deref(class.AllowVolumeExpansion, false)
}
