package podspec

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

// ValidateClaim checks what a claim asks for. A stored one may have a selector, and a group of its data source, that
// would be refused today.
func ValidateClaim(s, old *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(path.Child("accessModes"), "at least 1 access mode is required"))
	}
	options := metav1validation.LabelSelectorValidationOptions{}
	if old != nil && len(enough.LabelSelector(old.Selector, options, nil)) > 0 {
		options.AllowInvalidLabelValueInSelector = true
	}
	if s.Selector != nil {
		errs = append(errs, enough.LabelSelector(s.Selector, options, path.Child("selector"))...)
	}
	errs = append(errs, ValidateAccessModes(s.AccessModes, path.Child("accessModes"))...)
	errs = append(errs, validateClaimSize(s, path.Child("resources").Key(string(corev1.ResourceStorage)))...)
	if name := s.StorageClassName; name != nil && *name != "" {
		errs = append(errs, check.Invalid(path.Child("storageClassName"), *name,
			validation.NameIsDNSSubdomain(*name, false))...)
	}
	if s.VolumeMode != nil {
		errs = append(errs, check.Supported(path.Child("volumeMode"), *s.VolumeMode, corev1.PersistentVolumeBlock,
			corev1.PersistentVolumeFilesystem)...)
	}
	errs = append(errs, validateDataSources(s, old, path)...)
	if name := s.VolumeAttributesClassName; name != nil && *name != "" {
		errs = append(errs, check.Invalid(path.Child("volumeAttributesClassName"), *name,
			validation.NameIsDNSSubdomain(*name, false))...)
	}
	return errs
}

// ValidateTemplateMetadata checks the metadata of what objects are made of: only labels and annotations are taken over.
func ValidateTemplateMetadata(m *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	errs := validation.ValidateAnnotations(m.Annotations, path.Child("annotations"))
	errs = append(errs, metav1validation.ValidateLabels(m.Labels, path.Child("labels"))...)
	rest := m.DeepCopy()
	rest.Labels, rest.Annotations = nil, nil
	set := reflect.ValueOf(*rest)
	for i := range set.NumField() {
		if !set.Field(i).IsZero() {
			errs = append(errs, field.Forbidden(path.Child(set.Type().Field(i).Name), "cannot be set"))
		}
	}
	return errs
}

// ValidateClaimTemplate checks the claim of an ephemeral volume. Of its metadata only labels and annotations are taken
// over.
func ValidateClaimTemplate(t *corev1.PersistentVolumeClaimTemplate, path *field.Path) field.ErrorList {
	errs := ValidateTemplateMetadata(&t.ObjectMeta, path.Child("metadata"))
	return append(errs, ValidateClaim(&t.Spec, nil, path.Child("spec"))...)
}

// ValidateAccessModes checks each mode, and that a volume for one pod is for nothing else.
func ValidateAccessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce,
		corev1.ReadWriteOncePod}
	others := false
	for _, mode := range modes {
		errs = append(errs, check.Supported(path, mode, known...)...)
		others = others || mode != corev1.ReadWriteOncePod && slices.Contains(known, mode)
	}
	if others && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func validateClaimSize(s *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	amount, ok := s.Resources.Requests[corev1.ResourceStorage]
	switch {
	case !ok:
		return field.ErrorList{field.Required(path, "")}
	case amount.Sign() <= 0:
		return field.ErrorList{field.Invalid(path, amount.String(), "must be greater than zero")}
	}
	return nil
}

// validateDataSources checks what the volume's content is to come from. Nothing here copies it: that is for those who
// make volumes.
func validateDataSources(s, old *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	strict := old == nil || (old.DataSource == nil || old.DataSource.APIGroup == nil) &&
		(old.DataSourceRef == nil || old.DataSourceRef.APIGroup == nil)
	var errs field.ErrorList
	if d := s.DataSource; d != nil {
		errs = append(errs, validateDataSource(d.APIGroup, d.Kind, d.Name, strict, path.Child("dataSource"))...)
	}
	d := s.DataSourceRef
	if d == nil {
		return errs
	}
	at := path.Child("dataSourceRef")
	errs = append(errs, validateDataSource(d.APIGroup, d.Kind, d.Name, strict, at)...)
	elsewhere := d.Namespace != nil && *d.Namespace != ""
	switch {
	case elsewhere:
		errs = append(errs, check.Invalid(at.Child("namespace"), *d.Namespace,
			validation.ValidateNamespaceName(*d.Namespace, false))...)
		if s.DataSource != nil {
			errs = append(errs, field.Invalid(path, path.Child("dataSource"),
				"may not be specified when dataSourceRef.namespace is specified"))
		}
	case s.DataSource != nil && (!alike.Values(s.DataSource.APIGroup, d.APIGroup) ||
		s.DataSource.Kind != d.Kind || s.DataSource.Name != d.Name):
		errs = append(errs, field.Invalid(path, path.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

func validateDataSource(group *string, kind, name string, strict bool, path *field.Path) field.ErrorList {
	errs := append(check.Required(path.Child("name"), name), check.Required(path.Child("kind"), kind)...)
	if group == nil || *group == "" {
		if kind != "PersistentVolumeClaim" {
			errs = append(errs, field.Invalid(
				path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
			))
		}
	} else if strict {
		errs = append(errs, check.DNSSubdomain(path.Child("apiGroup"), *group)...)
	}
	return errs
}
