package persistentvolumeclaim

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
)

// ValidateUpdate checks a changed claim, metadata aside. What is asked for stays: quotas and limits were applied to it.
// The volume is named once, a class can be added where there was none, and a bound claim may grow.
func ValidateUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	at := field.NewPath("spec")
	errs := podspec.ValidateClaim(&c.Spec, &old.Spec, at)
	now, before := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if before.VolumeName == "" {
		before.VolumeName = now.VolumeName
	}
	const annotation = corev1.BetaStorageClassAnnotation
	if !movesClass(c, old) && c.Annotations[annotation] != old.Annotations[annotation] {
		errs = append(errs, field.Invalid(
			field.NewPath("metadata", "annotations").Key(annotation), c.Annotations[annotation],
			validation.FieldImmutableErrorMsg,
		))
	}
	if named, is := old.Annotations[annotation]; before.StorageClassName == nil && now.StorageClassName != nil &&
		(!is || *now.StorageClassName == named) {
		now.StorageClassName = nil
	}
	bound := c.Status.Phase == corev1.ClaimBound
	if bound {
		if now.Resources.Requests != nil {
			now.Resources.Requests[corev1.ResourceStorage] = old.Spec.Resources.Requests[corev1.ResourceStorage]
		}
		now.VolumeAttributesClassName = before.VolumeAttributesClassName
	}
	if sources := *before; !alike.Values(*now, sources) {
		completeSources(&sources) // what an older version stored
		if !alike.Values(*now, sources) {
			text := fmt.Sprintf(
				"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v",
				diff.Diff(sources, *now),
			)
			errs = append(errs, field.Forbidden(at, text))
		}
	}
	if c.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) < 0 &&
		c.Spec.Resources.Requests.Storage().Cmp(*old.Status.Capacity.Storage()) <= 0 {
		errs = append(errs, field.Forbidden(
			at.Child("resources", "requests", "storage"), "field can not be less than status.capacity",
		))
	}
	errs = append(errs, alike.Unchanged(
		c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"),
	)...)
	return append(errs, validateAttributes(c, old, at.Child("volumeAttributesClassName"))...)
}

// movesClass says whether the class moves from the annotation of old into its field.
func movesClass(c, old *corev1.PersistentVolumeClaim) bool {
	was, is := old.Annotations[corev1.BetaStorageClassAnnotation]
	now, still := c.Annotations[corev1.BetaStorageClassAnnotation]
	return is && old.Spec.StorageClassName == nil && c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == was &&
		(!still || now == was)
}

// validateAttributes checks that attributes which a volume has got are not taken back.
func validateAttributes(c, old *corev1.PersistentVolumeClaim, at *field.Path) field.ErrorList {
	if old.Status.CurrentVolumeAttributesClassName == nil ||
		alike.Values(c.Spec.VolumeAttributesClassName, old.Spec.VolumeAttributesClassName) {
		return nil
	}
	switch name := c.Spec.VolumeAttributesClassName; {
	case name == nil:
		return field.ErrorList{field.Forbidden(
			at, "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil",
		)}
	case *name == "":
		return field.ErrorList{field.Forbidden(
			at, "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil",
		)}
	}
	return nil
}

// resizes are the states of a volume that grows.
var resizes = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimControllerResizeInProgress,
	corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInProgress,
	corev1.PersistentVolumeClaimNodeResizePending,
}

// ValidateStatus checks a status that somebody wrote.
func ValidateStatus(c *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("status")
	for name, amount := range enough.Entries(c.Status.Capacity, &errs) {
		if amount.Sign() < 0 {
			errs = append(errs, field.Invalid(
				at.Child("capacity").Key(string(name)), amount.Value(), "must be a valid resource quantity",
			))
		}
	}
	for name, state := range enough.Entries(c.Status.AllocatedResourceStatuses, &errs) {
		errs = append(errs, validateResource(name, at.Child("allocatedResourceStatuses"))...)
		known := false
		for _, r := range resizes {
			known = known || r == state
		}
		if !known {
			errs = append(errs, field.NotSupported(at.Child("allocatedResourceStatuses"), name, resizes))
		}
	}
	for name, amount := range enough.Entries(c.Status.AllocatedResources, &errs) {
		path := at.Child("allocatedResources")
		errs = append(errs, validateResource(name, path)...)
		if amount.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Key(string(name)), amount.Value(), "must be a valid resource quantity"))
		}
	}
	return errs
}

// validateResource refuses names of Kubernetes' own but "storage"; others may have theirs.
func validateResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, text := range utilvalidation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(at, string(name), text))
	}
	native := !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
	if len(errs) == 0 && native && name != corev1.ResourceStorage {
		errs = append(errs, field.NotSupported(at, string(name), []corev1.ResourceName{corev1.ResourceStorage}))
	}
	return errs
}
