// Package storageclass gives new claims that name no class the one that is marked as the default.
package storageclass

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/everynode/everynode/internal/apiserver/admission/defaultclass"
	"github.com/everynode/everynode/internal/objects/volume"
)

// Classes reads classes; a lister of client-go is one.
type Classes = defaultclass.Classes[*storagev1.StorageClass]

var rules = defaultclass.Rules[*corev1.PersistentVolumeClaim, *storagev1.StorageClass]{
	Resource: corev1.Resource("persistentvolumeclaims"), Expected: "a PersistentVolumeClaim", ClassKind: "StorageClasses",
	Named: volume.HasClass, Default: volume.DefaultClass,
	Set: func(c *corev1.PersistentVolumeClaim, name string) { c.Spec.StorageClassName = &name },
}

// New makes the plugin. New claims without a class wait until synced reports that classes can be read.
func New(classes Classes, synced func() bool) admission.MutationInterface {
	return defaultclass.New(rules, classes, synced)
}
