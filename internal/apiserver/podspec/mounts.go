package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

// mounts checks where a container sees the pod's volumes. Some errors name the
// list instead of its element, as they do in Kubernetes.
func (p containerChecks) mounts(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	places := sets.New[string]()
	devices, devicePlaces := sets.New[string](), sets.New[string]()
	for _, d := range c.VolumeDevices {
		devices.Insert(d.Name)
		devicePlaces.Insert(d.DevicePath)
	}
	for i, m := range enough.Each(c.VolumeMounts, &errs) {
		at := path.Index(i)
		errs = append(errs, check.Required(at.Child("name"), m.Name)...)
		if _, ok := p.volumes[m.Name]; !ok {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		errs = append(errs, check.Required(at.Child("mountPath"), m.MountPath)...)
		if places.Has(m.MountPath) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		places.Insert(m.MountPath)
		if devices.Has(m.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices"))
		}
		if devicePlaces.Has(m.MountPath) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath,
				"must not already exist as a path in volumeDevices"))
		}
		if m.SubPath != "" {
			errs = append(errs, check.BelowRoot(path.Child("subPath"), m.SubPath)...)
		}
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr,
					"subPathExpr and subPath are mutually exclusive"))
			}
			errs = append(errs, check.BelowRoot(path.Child("subPathExpr"), m.SubPathExpr)...)
		}
		errs = append(errs, validatePropagation(m.MountPropagation, c, path.Child("mountPropagation"))...)
		errs = append(errs, validateRecursiveReadOnly(&m, path.Child("recursiveReadOnly"))...)
	}
	return errs
}

func validatePropagation(mode *corev1.MountPropagationMode, c *corev1.Container, path *field.Path) field.ErrorList {
	if mode == nil {
		return nil
	}
	errs := check.Supported(path, *mode,
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	if *mode == corev1.MountPropagationBidirectional && !privileged {
		errs = append(errs, field.Forbidden(
			path, "Bidirectional mount propagation is available only to privileged containers",
		))
	}
	return errs
}

func validateRecursiveReadOnly(m *corev1.VolumeMount, path *field.Path) field.ErrorList {
	mode := m.RecursiveReadOnly
	if mode == nil {
		return nil
	}
	switch *mode {
	case corev1.RecursiveReadOnlyDisabled:
		return nil
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
		var errs field.ErrorList
		if !m.ReadOnly {
			errs = append(errs, field.Forbidden(path, "may only be specified when readOnly is true"))
		}
		if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			errs = append(errs, field.Forbidden(path, "may only be specified when mountPropagation is None or not specified"))
		}
		return errs
	}
	return check.Supported(path, *mode, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible,
		corev1.RecursiveReadOnlyEnabled)
}

// devices checks the raw block devices of a container.
func (p containerChecks) devices(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, places := sets.New[string](), sets.New[string]()
	for i, d := range enough.Each(c.VolumeDevices, &errs) {
		at := path.Index(i)
		errs = append(errs, check.Required(at.Child("name"), d.Name)...)
		if names.Has(d.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "must be unique"))
		}
		if source, ok := p.volumes[d.Name]; !ok {
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		} else if source.PersistentVolumeClaim == nil && source.Ephemeral == nil {
			errs = append(errs, field.Invalid(at.Child("name"), d.Name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		switch {
		case d.DevicePath == "":
			errs = append(errs, field.Required(at.Child("devicePath"), ""))
		case places.Has(d.DevicePath):
			errs = append(errs, field.Invalid(at.Child("devicePath"), d.DevicePath, "must be unique"))
		case strings.Contains(d.DevicePath, ".."):
			errs = append(errs, check.NoStepsUp(at.Child("devicePath"), d.DevicePath)...)
		}
		names.Insert(d.Name)
		places.Insert(d.DevicePath)
	}
	return errs
}
