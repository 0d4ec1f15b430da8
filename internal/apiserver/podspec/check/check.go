// Package check has what several checks of a specification share: names, paths and closed sets.
package check

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Invalid makes one error of every message about the same value.
func Invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// Required refuses an empty string.
func Required(path *field.Path, value string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// Supported refuses a value that is not in the list, an empty one included.
func Supported[T ~string](path *field.Path, value T, list ...T) field.ErrorList {
	if slices.Contains(list, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, list)}
}

// Chosen is supported for fields that must not be empty.
func Chosen[T ~string](path *field.Path, value T, list ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return Supported(path, value, list...)
}

// NonNegative refuses numbers below 0.
func NonNegative[T ~int32 | ~int64](path *field.Path, value T) field.ErrorList {
	return validation.ValidateNonnegativeField(int64(value), path)
}

// DNSLabel refuses what is no DNS label.
func DNSLabel(path *field.Path, value string) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsDNS1123Label(value))
}

// DNSSubdomain refuses what is no DNS subdomain.
func DNSSubdomain(path *field.Path, value string) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsDNS1123Subdomain(value))
}

// RequiredSubdomain refuses an empty name in its own words.
func RequiredSubdomain(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return DNSSubdomain(path, name)
}

// LabelName refuses what cannot be the name of a label.
func LabelName(path *field.Path, value string) field.ErrorList {
	return Invalid(path, value, utilvalidation.IsQualifiedName(value))
}

// BelowRoot refuses a path that does not stay below the directory it is used in.
func BelowRoot(path *field.Path, value string) field.ErrorList {
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

// IPs returns what checks the addresses of a list, strictly. Those that were there before stay as they were written. It
// asks the library about one at a time, which would look each up in the whole list.
func IPs(before []string) func(path *field.Path, ip string) field.ErrorList {
	had := sets.New(before...)
	return func(path *field.Path, ip string) field.ErrorList {
		var old []string
		if had.Has(ip) {
			old = []string{ip}
		}
		return utilvalidation.IsValidIPForLegacyField(path, ip, true, old)
	}
}
