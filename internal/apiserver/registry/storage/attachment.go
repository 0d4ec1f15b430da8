package storage

import (
	"context"
	"math"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/registry/csi"
	"github.com/everynode/everynode/internal/apiserver/registry/persistentvolume"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Limits of what an attacher may write into a status, in bytes.
const (
	maxMetadata     = 256 << 10
	maxErrorMessage = 1024
)

func attachment() resource.Definition {
	return resource.Of[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](resource.Kind{
		GroupVersion: storagev1.SchemeGroupVersion, Kind: "VolumeAttachment", Plural: "volumeattachments",
		Singular: "volumeattachment", ClusterScoped: true,
	}, resource.Rules[storagev1.VolumeAttachment]{
		// The specification never changes, so the kind keeps no generation.
		Status:   func(a *storagev1.VolumeAttachment) any { return &a.Status },
		Validate: func(_ context.Context, a *storagev1.VolumeAttachment) field.ErrorList { return ValidateAttachment(a) },
		ValidateUpdate: func(_ context.Context, a, old *storagev1.VolumeAttachment) field.ErrorList {
			return append(ValidateAttachment(a), alike.Unchanged(a.Spec, old.Spec, field.NewPath("spec"))...)
		},
		PrepareStatusForUpdate: func(_ context.Context, a, old *storagev1.VolumeAttachment) {
			a.Spec = old.Spec
			a.Labels, a.Annotations, a.Finalizers = old.Labels, old.Annotations, old.Finalizers
		},
		ValidateStatusUpdate: func(_ context.Context, a, _ *storagev1.VolumeAttachment) field.ErrorList {
			return ValidateAttachment(a)
		},
		StatusResetFields: []string{"metadata", "spec"},

		RequireResourceVersion: true,
		Table: table.Of(func(a *storagev1.VolumeAttachment, now time.Time) []any {
			return []any{
				a.Name,
				a.Spec.Attacher,
				ptr.Deref(a.Spec.Source.PersistentVolumeName, ""),
				a.Spec.NodeName,
				a.Status.Attached,
				table.Since(a.CreationTimestamp, now),
			}
		},
			table.Name,
			table.Column{Name: "Attacher", Format: "name", Description: "The driver that attaches the volume."},
			table.Column{Name: "PV", Description: "The volume."},
			table.Column{Name: "Node", Description: "The node that it is attached to."},
			table.Column{Name: "Attached", Type: "boolean", Description: "Whether it is attached."},
			table.Age,
		),
	})
}

// ValidateAttachment checks an attachment, metadata aside.
func ValidateAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	path := field.NewPath("spec")
	errs := csi.ValidateName(a.Spec.Attacher, path.Child("attacher"))
	errs = append(errs, validateAttachedVolume(&a.Spec.Source, path.Child("source"))...)
	errs = append(errs, invalid(
		path.Child("nodeName"), a.Spec.NodeName, validation.NameIsDNSSubdomain(a.Spec.NodeName, false),
	)...)
	status := field.NewPath("status")
	if textIn(a.Status.AttachmentMetadata) > maxMetadata {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", maxMetadata))
	}
	errs = append(errs, validateVolumeError(a.Status.AttachError, status.Child("attachError"))...)
	errs = append(errs, validateVolumeError(a.Status.DetachError, status.Child("detachError"))...)
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		errs = append(errs, invalid(
			field.NewPath("spec.source.persistentVolumeName"), *name, validation.NameIsDNSSubdomain(*name, false),
		)...)
	}
	return errs
}

func validateAttachedVolume(s *storagev1.VolumeAttachmentSource, path *field.Path) field.ErrorList {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		return field.ErrorList{field.Required(path, one)}
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		return field.ErrorList{field.Forbidden(path, one)}
	case s.InlineVolumeSpec != nil:
		return persistentvolume.ValidateInline(s.InlineVolumeSpec, path.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		return field.ErrorList{field.Required(
			path.Child("persistentVolumeName"), "must specify non empty persistentVolumeName",
		)}
	}
	return nil
}

func validateVolumeError(e *storagev1.VolumeError, path *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxErrorMessage {
		errs = append(errs, field.TooLong(path.Child("message"), "", maxErrorMessage))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs, field.Invalid(
			path.Child("errorCode"), *e.ErrorCode, utilvalidation.InclusiveRangeError(0, math.MaxInt32),
		))
	}
	return errs
}
