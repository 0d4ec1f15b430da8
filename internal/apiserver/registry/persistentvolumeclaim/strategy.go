// Package persistentvolumeclaim describes the kind PersistentVolumeClaim: storage that somebody in a namespace wants,
// and the volume that they got.
package persistentvolumeclaim

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
	"github.com/everynode/everynode/internal/objects/volume"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "PersistentVolumeClaim", Plural: "persistentvolumeclaims",
		Singular:   "persistentvolumeclaim",
		ShortNames: []string{"pvc"},
	}, resource.Rules[corev1.PersistentVolumeClaim]{
		Default: SetDefaults,
		Status:  func(c *corev1.PersistentVolumeClaim) any { return &c.Status },
		PrepareForCreate: func(_ context.Context, c *corev1.PersistentVolumeClaim) {
			c.Status.Phase = corev1.ClaimPending
			dropFarSource(&c.Spec, nil)
			keepKnownSource(&c.Spec, nil)
			completeSources(&c.Spec)
		},
		PrepareForUpdate: func(_ context.Context, c, old *corev1.PersistentVolumeClaim) {
			dropFarSource(&c.Spec, &old.Spec)
			keepKnownSource(&c.Spec, &old.Spec)
			completeSources(&c.Spec)
		},
		Validate: func(_ context.Context, c *corev1.PersistentVolumeClaim) field.ErrorList {
			return podspec.ValidateClaim(&c.Spec, nil, field.NewPath("spec"))
		},
		ValidateUpdate: func(_ context.Context, c, old *corev1.PersistentVolumeClaim) field.ErrorList {
			return ValidateUpdate(c, old)
		},
		PrepareStatusForUpdate: func(_ context.Context, c, old *corev1.PersistentVolumeClaim) { c.Spec = old.Spec },
		ValidateStatusUpdate: func(_ context.Context, c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
			return ValidateStatus(c)
		},
		WarningsOnCreate: func(_ context.Context, c *corev1.PersistentVolumeClaim) []string { return warningsOf(c) },
		WarningsOnUpdate: func(_ context.Context, c, old *corev1.PersistentVolumeClaim) []string {
			return append(warningsOf(c), growthWarnings(c, old)...)
		},
		Fields:      func(c *corev1.PersistentVolumeClaim) fields.Set { return fields.Set{"name": c.Name} },
		FieldLabels: []string{"name"},
		Table:       claimTable,
	})
}

// SetDefaults fills in what a claim leaves out.
func SetDefaults(c *corev1.PersistentVolumeClaim) {
	if c.Status.Phase == "" {
		c.Status.Phase = corev1.ClaimPending
	}
	defaults.SetClaim(&c.Spec)
	defaults.RoundResources(c.Status.Capacity)
	defaults.RoundResources(c.Status.AllocatedResources)
}

// dropFarSource drops a source in another namespace, as without kube-apiserver's gate CrossNamespaceVolumeDataSource:
// nothing here asks whether that namespace allows it. What was stored stays.
func dropFarSource(s, old *corev1.PersistentVolumeClaimSpec) {
	if (old == nil || old.DataSourceRef == nil) && s.DataSourceRef != nil &&
		ptr.Deref(s.DataSourceRef.Namespace, "") != "" {
		s.DataSourceRef = nil
	}
}

// keepKnownSource drops what a claim is to be filled from if it is of a kind that this field never had; the newer field
// takes any.
func keepKnownSource(s, old *corev1.PersistentVolumeClaimSpec) {
	if old != nil && (old.DataSource != nil || old.DataSourceRef != nil) || s.DataSourceRef != nil || s.DataSource == nil {
		return
	}
	group := ptr.Deref(s.DataSource.APIGroup, "")
	if s.DataSource.Kind == "PersistentVolumeClaim" && group == "" ||
		s.DataSource.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io" {
		return
	}
	s.DataSource = nil
}

// completeSources has both fields say the same, the old one and the new one.
func completeSources(s *corev1.PersistentVolumeClaimSpec) {
	switch {
	case s.DataSource != nil && s.DataSourceRef == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{
			APIGroup: s.DataSource.APIGroup,
			Kind:     s.DataSource.Kind,
			Name:     s.DataSource.Name,
		}
	case s.DataSource == nil && s.DataSourceRef != nil && ptr.Deref(s.DataSourceRef.Namespace, "") == "":
		s.DataSource = &corev1.TypedLocalObjectReference{
			APIGroup: s.DataSourceRef.APIGroup,
			Kind:     s.DataSourceRef.Kind,
			Name:     s.DataSourceRef.Name,
		}
	}
}

func warningsOf(c *corev1.PersistentVolumeClaim) (out []string) {
	if _, old := c.Annotations[corev1.BetaStorageClassAnnotation]; old {
		out = append(out, field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation).String()+
			`: deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	return append(out, warnings.OfClaim(&c.Spec, field.NewPath("spec"))...)
}

// growthWarnings tell who asks for more that nothing here gives it.
func growthWarnings(c, old *corev1.PersistentVolumeClaim) []string {
	if c.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) <= 0 {
		return nil
	}
	return []string{
		"spec.resources.requests.storage: nothing here makes volumes grow; this one stays as large as it is, unless a " +
			"program of its storage driver does it",
	}
}

var claimTable = table.Of(func(c *corev1.PersistentVolumeClaim, now time.Time) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	capacity, modes, mode := "", "", "<unset>"
	if c.Spec.VolumeName != "" {
		capacity, modes = c.Status.Capacity.Storage().String(), volume.AccessModes(c.Status.AccessModes)
	}
	if c.Spec.VolumeMode != nil {
		mode = string(*c.Spec.VolumeMode)
	}
	return []any{
		c.Name,
		phase,
		c.Spec.VolumeName,
		capacity,
		modes,
		volume.ClaimClass(c),
		ptr.Deref(c.Spec.VolumeAttributesClassName, "<unset>"),
		table.Since(c.CreationTimestamp, now),
		mode,
	}
},
	table.Name,
	table.Column{Name: "Status", Description: "Whether it has its volume."},
	table.Column{Name: "Volume", Description: "The volume."},
	table.Column{Name: "Capacity", Description: "How much fits in."},
	table.Column{Name: "Access Modes", Description: "How the volume can be used by several."},
	table.Column{Name: "StorageClass", Description: "The class that it asks for."},
	table.Column{Name: "VolumeAttributesClass", Description: "The class of the volume's attributes."},
	table.Age,
	table.Column{Name: "VolumeMode", Description: "Whether pods get a file system or a device.", Wide: true},
)
