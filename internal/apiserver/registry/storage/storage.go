// Package storage describes the kinds of storage.k8s.io/v1 that say how storage is made and where it is: StorageClass,
// VolumeAttributesClass, CSIStorageCapacity and VolumeAttachment.
package storage

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// Definitions returns the four kinds.
func Definitions() []resource.Definition {
	return []resource.Definition{storageClass(), attributesClass(), capacity(), attachment()}
}

// Limits of the parameters of a class: how many, and how much text in all.
const (
	maxParameters    = 512
	maxParameterText = 256 << 10
)

func validateParameters(parameters map[string]string, path *field.Path) field.ErrorList {
	if len(parameters) > maxParameters {
		return field.ErrorList{field.TooLong(path, "", maxParameters)}
	}
	var errs field.ErrorList
	if _, empty := parameters[""]; empty {
		errs = append(errs, field.Invalid(path, "", "field can not be empty."))
	}
	if textIn(parameters) > maxParameterText {
		errs = append(errs, field.TooLong(path, "", maxParameterText))
	}
	return errs
}

func textIn(texts map[string]string) (size int) {
	for k, v := range texts {
		size += len(k) + len(v)
	}
	return size
}

// validateProvisioner checks the name of who makes volumes.
func validateProvisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, strings.ToLower(name), utilvalidation.IsQualifiedName(strings.ToLower(name)))
}

// validateClassName checks the name of a class that is referred to.
func validateClassName(name string, path *field.Path) field.ErrorList {
	return invalid(path, name, validation.NameIsDNSSubdomain(name, false))
}

func invalid(path *field.Path, value string, texts []string) (errs field.ErrorList) {
	for _, text := range texts {
		errs = append(errs, field.Invalid(path, value, text))
	}
	return errs
}
