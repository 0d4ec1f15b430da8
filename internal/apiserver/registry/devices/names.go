package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	devicecel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/registry/csi"
	"github.com/everynode/everynode/internal/objects/compiled"
)

// each checks the length of a list, and every element. Of a list that is too long nothing more is said.
func each[T any](items []T, most int, path *field.Path, check func(T, *field.Path) field.ErrorList) field.ErrorList {
	if most >= 0 && len(items) > most {
		return field.ErrorList{field.TooMany(path, len(items), most)}
	}
	var errs field.ErrorList
	for i, item := range enough.Each(items, &errs) {
		errs = append(errs, check(item, path.Index(i))...)
	}
	return errs
}

// distinct is like each, for elements of which no two may have the same key.
func distinct[T any, K comparable](
	items []T, most int, path *field.Path, key func(T) K, check func(T, *field.Path) field.ErrorList,
) field.ErrorList {
	errs := each(items, most, path, check)
	if most >= 0 && len(items) > most {
		return errs
	}
	seen := map[K]bool{}
	for i, item := range enough.Each(items, &errs) {
		if k := key(item); seen[k] {
			errs = append(errs, field.Duplicate(path.Index(i), k))
		} else {
			seen[k] = true
		}
	}
	return errs
}

func itself[T any](item T) T { return item }

func invalid(path *field.Path, value string, texts []string) (errs field.ErrorList) {
	for _, text := range texts {
		errs = append(errs, field.Invalid(path, value, text))
	}
	return errs
}

func validateLabel(name string, path *field.Path) field.ErrorList {
	return invalid(path, name, utilvalidation.IsDNS1123Label(name))
}

func validateSubdomain(name string, path *field.Path) field.ErrorList {
	return invalid(path, name, utilvalidation.IsDNS1123Subdomain(name))
}

func validateDriver(name string, path *field.Path) field.ErrorList {
	return csi.ValidateName(name, path)
}

func validatePool(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.PoolNameMaxLength))
	}
	for _, part := range strings.Split(name, "/") {
		errs = append(errs, validateSubdomain(part, path)...)
	}
	return errs
}

func validateShare(id string, path *field.Path) field.ErrorList {
	if err := uuid.Validate(id); err != nil {
		return field.ErrorList{field.Invalid(path, id, fmt.Sprintf("error validating uid: %v", err))}
	}
	if len(id) != 36 || id != strings.ToLower(id) {
		return field.ErrorList{field.Invalid(
			path, id,
			"uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal "+
				"characters",
		)}
	}
	return nil
}

// validateQualified checks the name of an attribute or a capacity, in a driver's domain or without one.
func validateQualified(name resourcev1.QualifiedName, path *field.Path) field.ErrorList {
	domain, id, has := strings.Cut(string(name), "/")
	if !has {
		return validateID(domain, path)
	}
	if strings.Contains(id, "/") {
		return nil // As kube-apiserver has it: such a name is never looked up.
	}
	var errs field.ErrorList
	if domain == "" {
		errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
	} else {
		errs = append(errs, validateDriver(domain, path)...)
	}
	if id == "" {
		return append(errs, field.Invalid(path, "", "the name must not be empty"))
	}
	return append(errs, validateID(id, path)...)
}

func validateFullyQualified(name resourcev1.FullyQualifiedName, path *field.Path) field.ErrorList {
	errs := validateQualified(resourcev1.QualifiedName(name), path)
	if !strings.Contains(string(name), "/") {
		errs = append(errs, field.Invalid(
			path, name, "a fully qualified name must be a domain and a name separated by a slash",
		))
	}
	return errs
}

func validateID(id string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, invalid(path, id, content.IsCIdentifier(id))...)
}

// validateParameters checks JSON that a driver gets or writes.
func validateParameters(raw runtime.RawExtension, path *field.Path, stored bool, most int) field.ErrorList {
	var value any
	switch {
	case len(raw.Raw) == 0:
		return field.ErrorList{field.Required(path, "")}
	case !stored && len(raw.Raw) > most:
		return field.ErrorList{field.TooLong(path, "", most)}
	}
	if err := json.Unmarshal(raw.Raw, &value); err != nil {
		return field.ErrorList{field.Invalid(path, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	if value == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if _, isObject := value.(map[string]any); !isObject {
		return field.ErrorList{field.Invalid(path, "<value omitted>", "must be a valid JSON object")}
	}
	return nil
}

func validateConfiguration(c resourcev1.DeviceConfiguration, path *field.Path, stored bool) field.ErrorList {
	at := path.Child("opaque")
	if c.Opaque == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	return append(validateDriver(c.Opaque.Driver, at.Child("driver")),
		validateParameters(c.Opaque.Parameters, at.Child("parameters"), stored, resourcev1.OpaqueParametersMaxLength)...)
}

func validateSelectors(selectors []resourcev1.DeviceSelector, path *field.Path, stored bool) field.ErrorList {
	return each(
		selectors, resourcev1.DeviceSelectorsMaxSize, path,
		func(s resourcev1.DeviceSelector, at *field.Path) field.ErrorList {
			if s.CEL == nil {
				return field.ErrorList{field.Required(at.Child("cel"), "")}
			}
			return validateExpression(s.CEL.Expression, at.Child("cel", "expression"), stored)
		},
	)
}

// validateExpression compiles what chooses devices. One that is too long is not even tried.
func validateExpression(expression string, path *field.Path, stored bool) field.ErrorList {
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	kind := environment.NewExpressions
	if stored {
		kind = environment.StoredExpressions
	}
	most, err := costs.Get(selector{expression, kind}, func() (uint64, error) {
		result := devicecel.GetCompiler(devicecel.Features{EnableConsumableCapacity: true}).
			CompileCELExpression(expression, devicecel.Options{EnvType: &kind})
		if result.Error != nil {
			return 0, result.Error
		}
		return result.MaxCost, nil
	})
	var wrong *apicel.Error
	switch {
	case errors.As(err, &wrong):
		return field.ErrorList{compilationError(wrong, expression, path)}
	case err != nil:
		return field.ErrorList{field.InternalError(path, err)}
	case most > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{field.Forbidden(path, "too complex, exceeds cost limit")}
	}
	return nil
}

// selector is an expression, and what it may use.
type selector struct {
	expression string
	kind       environment.Type
}

// costs are what selectors cost at most. A template's claims, one for each pod, have the same selectors. An expression
// has 10 KiB at most.
var costs = compiled.New[selector, uint64](500)

func compilationError(err *apicel.Error, expression string, path *field.Path) *field.Error {
	switch err.Type {
	case apicel.ErrorTypeRequired:
		return field.Required(path, err.Detail)
	case apicel.ErrorTypeInvalid:
		return field.Invalid(path, expression, err.Detail)
	case apicel.ErrorTypeInternal:
	}
	return field.InternalError(path, errors.New(err.Detail))
}

// isExtendedResource says whether a name can be that of a resource outside of Kubernetes' own.
func isExtendedResource(name string) bool {
	native := !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
	return !native && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(utilvalidation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
