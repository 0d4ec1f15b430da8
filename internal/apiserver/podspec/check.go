package podspec

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// invalid makes one error of every message about the same value.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// required refuses an empty string.
func required(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// supported refuses a value that is not in the list, an empty one included.
func supported[T ~string](path *field.Path, value T, list ...T) field.ErrorList {
	if slices.Contains(list, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, list)}
}

// chosen is supported for fields that must not be empty.
func chosen[T ~string](path *field.Path, value T, list ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return supported(path, value, list...)
}

func nonNegative[T ~int32 | ~int64](path *field.Path, value T) field.ErrorList {
	return validation.ValidateNonnegativeField(int64(value), path)
}

func dnsLabel(path *field.Path, value string) field.ErrorList {
	return invalid(path, value, utilvalidation.IsDNS1123Label(value))
}

func dnsSubdomain(path *field.Path, value string) field.ErrorList {
	return invalid(path, value, utilvalidation.IsDNS1123Subdomain(value))
}

// requiredSubdomain refuses an empty name in its own words.
func requiredSubdomain(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return dnsSubdomain(path, name)
}

func labelName(path *field.Path, value string) field.ErrorList {
	return invalid(path, value, utilvalidation.IsQualifiedName(value))
}

// belowRoot refuses a path that does not stay below the directory it is used in.
func belowRoot(path *field.Path, value string) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(value, "/") {
		errs = append(errs, field.Invalid(path, value, "must be a relative path"))
	}
	return append(errs, NoStepsUp(path, value)...)
}

// NoStepsUp refuses a path that leads out of a folder by "..".
func NoStepsUp(path *field.Path, value string) field.ErrorList {
	if slices.Contains(strings.Split(value, "/"), "..") {
		return field.ErrorList{field.Invalid(path, value, "must not contain '..'")}
	}
	return nil
}
