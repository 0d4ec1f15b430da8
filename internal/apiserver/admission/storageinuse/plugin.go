// Package storageinuse gives new PersistentVolumes and claims the finalizers that keep them from going while they are
// in use. The controller of PersistentVolumes takes them away.
package storageinuse

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/internal/objects/volume"
)

// Plugin is the admission plugin.
type Plugin struct{ *admission.Handler }

var _ admission.MutationInterface = Plugin{}

// New makes the plugin.
func New() Plugin { return Plugin{admission.NewHandler(admission.Create)} }

// Admit implements admission.MutationInterface.
func (Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	switch obj := a.GetObject().(type) {
	case *corev1.PersistentVolume:
		protect(&obj.ObjectMeta, volume.Protection)
	case *corev1.PersistentVolumeClaim:
		protect(&obj.ObjectMeta, volume.ClaimProtection)
	}
	return nil
}

func protect(m *metav1.ObjectMeta, name string) {
	if !slices.Contains(m.Finalizers, name) {
		m.Finalizers = append(m.Finalizers, name)
	}
}
