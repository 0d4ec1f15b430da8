package persistentvolume

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/placement"
)

// Validate checks a volume, metadata aside; old is nil for a new one.
func Validate(v, old *corev1.PersistentVolume) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateSpec(&v.Spec, at)
	if a := v.Spec.NodeAffinity; a != nil {
		// What was stored stays good, whatever its labels' values are.
		if old == nil || !alike.Values(a, old.Spec.NodeAffinity) {
			errs = append(errs, validateAffinity(a, at.Child("nodeAffinity"))...)
		}
	} else if v.Spec.Local != nil {
		errs = append(errs, field.Required(at.Child("nodeAffinity"), "Local volume requires node affinity"))
	}
	if _, there := v.Annotations[corev1.MountOptionAnnotation]; there && !takesMountOptions(&v.Spec) {
		errs = append(errs, field.Forbidden(
			field.NewPath("metadata").Child("annotations", corev1.MountOptionAnnotation),
			"may not specify mount options for this volume type",
		))
	}
	return errs
}

func validateAffinity(a *corev1.VolumeNodeAffinity, at *field.Path) field.ErrorList {
	if a.Required == nil {
		return field.ErrorList{field.Required(at.Child("required"), "must specify required node constraints")}
	}
	return placement.NodeSelector(a.Required, at.Child("required"))
}

func validateSpec(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	errs := validateModes(s, at)
	errs = append(errs, validateCapacity(s.Capacity, at.Child("capacity"))...)
	known := []corev1.PersistentVolumeReclaimPolicy{
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain,
	}
	errs = append(errs, oneOf(at.Child("persistentVolumeReclaimPolicy"), s.PersistentVolumeReclaimPolicy, known)...)
	errs = append(errs, validateSource(s, at)...)
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" &&
		s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(
			at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'",
		))
	}
	if s.StorageClassName != "" {
		errs = append(errs, subdomain(at.Child("storageClassName"), s.StorageClassName)...)
	}
	if s.VolumeMode != nil {
		errs = append(errs, oneOf(at.Child("volumeMode"), *s.VolumeMode, []corev1.PersistentVolumeMode{
			corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem,
		})...)
	}
	return append(errs, validateAttributes(s, at)...)
}

func validateModes(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	at = at.Child("accessModes")
	if len(s.AccessModes) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	return podspec.ValidateAccessModes(s.AccessModes, at)
}

func validateCapacity(capacity corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(capacity) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if _, there := capacity[corev1.ResourceStorage]; !there || len(capacity) > 1 {
		errs = append(errs, field.NotSupported(at, capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, amount := range enough.Entries(capacity, &errs) {
		if amount.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), amount.Value(), "must be a valid resource quantity"))
		}
		if amount.Sign() <= 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), amount.String(), "must be greater than zero"))
		}
	}
	return errs
}

func validateAttributes(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	if s.VolumeAttributesClassName == nil {
		return nil
	}
	var errs field.ErrorList
	if name := *s.VolumeAttributesClassName; name == "" {
		errs = append(errs, field.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed"))
	} else {
		errs = append(errs, subdomain(at.Child("volumeAttributesClassName"), name)...)
	}
	if s.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
	}
	return errs
}

// ValidateInline checks the volume of a pod that is attached without being a PersistentVolume.
func ValidateInline(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	const context = "in the context of inline volumes"
	var errs field.ErrorList
	forbid := func(name string, set bool) {
		if set {
			errs = append(errs, field.Forbidden(at.Child(name), "may not be specified "+context))
		}
	}
	forbid("claimRef", s.ClaimRef != nil)
	forbid("capacity", len(s.Capacity) > 0)
	if s.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified "+context))
	}
	errs = append(errs, validateModes(s, at)...)
	if p := s.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may only be Retain "+context))
	}
	forbid("nodeAffinity", s.NodeAffinity != nil)
	errs = append(errs, validateSource(s, at)...)
	forbid("storageClassName", s.StorageClassName != "")
	if m := s.VolumeMode; m != nil && *m != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(
			at.Child("volumeMode"), "may not specify volumeMode other than Filesystem "+context,
		))
	}
	return errs
}

// validateStays checks that a volume stays where it is.
func validateStays(v, old *corev1.PersistentVolume) field.ErrorList {
	var errs field.ErrorList
	now, before := &v.Spec, &old.Spec
	if before.CSI != nil && before.CSI.ControllerExpandSecretRef == nil && now.CSI != nil &&
		now.CSI.ControllerExpandSecretRef != nil {
		now = now.DeepCopy()
		now.CSI.ControllerExpandSecretRef = nil // may be added
	}
	if !alike.Values(now.PersistentVolumeSource, before.PersistentVolumeSource) {
		text := fmt.Sprintf(
			"spec.persistentvolumesource is immutable after creation\n%v",
			diff.Diff(before.PersistentVolumeSource, now.PersistentVolumeSource),
		)
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"), text))
	}
	errs = append(
		errs, alike.Unchanged(now.VolumeMode, before.VolumeMode, field.NewPath("volumeMode"))...,
	)
	if before.NodeAffinity != nil &&
		!alike.Values(now.NodeAffinity, renamed(before.NodeAffinity, now.NodeAffinity)) {
		errs = append(errs, field.Invalid(
			field.NewPath("nodeAffinity"), now.NodeAffinity, "field is immutable, except for updating from beta label to GA",
		))
	}
	if before.VolumeAttributesClassName != nil && now.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(
			field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden",
		))
	}
	return errs
}

// newNames are labels of nodes that may take the place of those with which they were called before.
var newNames = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

// renamed is an affinity with the new names of those labels which the other one calls by them.
func renamed(old, now *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	if old.Required == nil || now == nil || now.Required == nil ||
		len(old.Required.NodeSelectorTerms) != len(now.Required.NodeSelectorTerms) {
		return old
	}
	out := old.DeepCopy()
	for i := range out.Required.NodeSelectorTerms {
		mine, theirs := out.Required.NodeSelectorTerms[i].MatchExpressions, now.Required.NodeSelectorTerms[i].MatchExpressions
		for j := range mine {
			if name, is := newNames[mine[j].Key]; is && j < len(theirs) && theirs[j].Key == name {
				mine[j].Key = name
			}
		}
	}
	return out
}

func oneOf[T ~string](at *field.Path, value T, known []T) field.ErrorList {
	for _, k := range known {
		if k == value {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(at, value, known)}
}

func subdomain(at *field.Path, name string) (errs field.ErrorList) {
	for _, text := range validation.NameIsDNSSubdomain(name, false) {
		errs = append(errs, field.Invalid(at, name, text))
	}
	return errs
}

// takesMountOptions says whether the old annotation for mount options means something for the volume.
func takesMountOptions(s *corev1.PersistentVolumeSpec) bool {
	return s.HostPath == nil && s.Local == nil && s.CSI == nil && s.FC == nil && s.FlexVolume == nil &&
		s.ScaleIO == nil && s.StorageOS == nil && s.PortworxVolume == nil && s.Flocker == nil
}
