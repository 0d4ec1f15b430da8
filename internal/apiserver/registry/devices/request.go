package devices

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/podspec/placement"
)

// requests are the names of a claim's requests, each with those of its alternatives.
type requests map[string][]string

func requestNames(c *resourcev1.DeviceClaim) requests {
	names := requests{}
	for _, r := range c.Requests {
		names[r.Name] = nil
		for _, sub := range r.FirstAvailable {
			names[r.Name] = append(names[r.Name], sub.Name)
		}
	}
	return names
}

// has says whether a name is that of a request, or of a request and one of its alternatives.
func (r requests) has(name string) bool {
	request, sub, below := strings.Cut(name, "/")
	subs, known := r[request]
	return known && (!below || slices.Contains(subs, sub))
}

func (r requests) validate(name string, path *field.Path) field.ErrorList {
	const text = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(name, "/")
	if len(parts) > 2 {
		return field.ErrorList{field.Invalid(path, name, text)}
	}
	var errs field.ErrorList
	for _, part := range parts {
		errs = append(errs, validateLabel(part, path)...)
	}
	if !r.has(name) {
		errs = append(errs, field.Invalid(path, name, text))
	}
	return errs
}

func (r requests) validateAll(names []string, path *field.Path) field.ErrorList {
	return distinct(names, resourcev1.DeviceRequestsMaxSize, path, itself, r.validate)
}

func validateClaimSpec(s *resourcev1.ResourceClaimSpec, path *field.Path) field.ErrorList {
	at := path.Child("devices")
	names := requestNames(&s.Devices)
	errs := distinct(s.Devices.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"),
		func(r resourcev1.DeviceRequest) string { return r.Name }, validateRequest)
	errs = append(errs, each(s.Devices.Constraints, resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"),
		func(c resourcev1.DeviceConstraint, at *field.Path) field.ErrorList {
			return validateConstraint(c, names, at)
		})...)
	return append(errs, each(s.Devices.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"),
		func(c resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
			return append(names.validateAll(c.Requests, at.Child("requests")), validateConfiguration(
				c.DeviceConfiguration, at, false,
			)...)
		})...)
}

func validateRequest(r resourcev1.DeviceRequest, path *field.Path) field.ErrorList {
	errs := validateLabel(r.Name, path.Child("name"))
	const one = "exactly one of `exactly` or `firstAvailable` is required"
	switch {
	case r.Exactly == nil && len(r.FirstAvailable) == 0:
		return append(errs, field.Required(path, one))
	case r.Exactly != nil && len(r.FirstAvailable) > 0:
		return append(errs, field.Invalid(path, nil, one+", but multiple fields are set"))
	case r.Exactly != nil:
		at := path.Child("exactly")
		wanted := wish{
			r.Exactly.DeviceClassName, r.Exactly.Selectors, r.Exactly.AllocationMode, r.Exactly.Count, r.Exactly.Tolerations,
		}
		return append(errs, wanted.validate(at)...)
	}
	return append(errs, distinct(
		r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, path.Child("firstAvailable"),
		func(s resourcev1.DeviceSubRequest) string { return s.Name },
		func(s resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
			wanted := wish{s.DeviceClassName, s.Selectors, s.AllocationMode, s.Count, s.Tolerations}
			return append(validateLabel(s.Name, at.Child("name")), wanted.validate(at)...)
		},
	)...)
}

// wish is what a request and an alternative of one have in common.
type wish struct {
	class       string
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
}

func (w wish) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if at := path.Child("deviceClassName"); w.class == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, validateSubdomain(w.class, at)...)
	}
	errs = append(errs, validateSelectors(w.selectors, path.Child("selectors"), false)...)
	count := path.Child("count")
	switch w.mode {
	case resourcev1.DeviceAllocationModeAll:
		if w.count != 0 {
			errs = append(errs, field.Invalid(
				count, w.count, fmt.Sprintf("must not be specified when allocationMode is '%s'", w.mode),
			))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if w.count <= 0 {
			errs = append(errs, field.Invalid(count, w.count, "must be greater than zero"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("allocationMode"), w.mode,
			[]resourcev1.DeviceAllocationMode{resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount}))
	}
	return append(errs, each(w.tolerations, -1, path.Child("tolerations"), validateToleration)...)
}

func validateConstraint(c resourcev1.DeviceConstraint, names requests, path *field.Path) field.ErrorList {
	errs := names.validateAll(c.Requests, path.Child("requests"))
	switch {
	case c.MatchAttribute != nil:
		return append(errs, validateFullyQualified(*c.MatchAttribute, path.Child("matchAttribute"))...)
	case c.DistinctAttribute != nil:
		return append(errs, validateFullyQualified(*c.DistinctAttribute, path.Child("distinctAttribute"))...)
	}
	return append(errs, field.Required(
		path, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`,
	))
}

var effects = []resourcev1.DeviceTaintEffect{
	resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone,
}

func validateToleration(t resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	value, operator := path.Child("value"), path.Child("operator")
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(value, t.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, invalid(value, t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
	case "":
		errs = append(errs, field.Required(operator, ""))
	default:
		errs = append(errs, field.NotSupported(operator, t.Operator,
			[]resourcev1.DeviceTolerationOperator{resourcev1.DeviceTolerationOpEqual, resourcev1.DeviceTolerationOpExists}))
	}
	if t.Effect != "" && !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, effects))
	}
	return errs
}

func validateAllocation(a *resourcev1.AllocationResult, names requests, path *field.Path) field.ErrorList {
	at := path.Child("devices")
	errs := each(a.Devices.Results, resourcev1.AllocationResultsMaxSize, at.Child("results"),
		func(r resourcev1.DeviceRequestAllocationResult, at *field.Path) field.ErrorList {
			return validateResult(r, names, at)
		})
	errs = append(errs, each(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, at.Child("config"),
		func(c resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
			errs := validateSource(c.Source, at.Child("source"))
			errs = append(errs, names.validateAll(c.Requests, at.Child("requests"))...)
			return append(errs, validateConfiguration(c.DeviceConfiguration, at, false)...)
		})...)
	if a.NodeSelector != nil {
		errs = append(errs, placement.NodeSelector(a.NodeSelector, path.Child("nodeSelector"))...)
	}
	return errs
}

func validateSource(s resourcev1.AllocationConfigSource, path *field.Path) field.ErrorList {
	good := []resourcev1.AllocationConfigSource{
		resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass,
	}
	switch {
	case s == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(good, s):
		return field.ErrorList{field.NotSupported(path, s, good)}
	}
	return nil
}

func validateResult(r resourcev1.DeviceRequestAllocationResult, names requests, path *field.Path) field.ErrorList {
	errs := names.validate(r.Request, path.Child("request"))
	errs = append(errs, validateDriver(r.Driver, path.Child("driver"))...)
	errs = append(errs, validatePool(r.Pool, path.Child("pool"))...)
	errs = append(errs, validateLabel(r.Device, path.Child("device"))...)
	errs = append(errs, validateBinding(r.BindingConditions, r.BindingFailureConditions, path)...)
	if r.ShareID != nil {
		errs = append(errs, validateShare(string(*r.ShareID), path.Child("shareID"))...)
	}
	return errs
}

// validateBinding checks the conditions that are waited for before a pod is bound.
func validateBinding(wanted, failed []string, path *field.Path) field.ErrorList {
	good, bad := path.Child("bindingConditions"), path.Child("bindingFailureConditions")
	errs := distinct(wanted, resourcev1.BindingConditionsMaxSize, good, itself, metav1validation.ValidateLabelName)
	errs = append(errs, distinct(
		failed, resourcev1.BindingFailureConditionsMaxSize, bad, itself, metav1validation.ValidateLabelName,
	)...)
	for i, c := range failed {
		if slices.Contains(wanted, c) {
			errs = append(errs, field.Invalid(
				bad.Index(i), c, "bindingFailureConditions must not overlap with bindingConditions",
			))
		}
	}
	if len(wanted) == 0 && len(failed) > 0 {
		errs = append(errs, field.Invalid(good, wanted, "bindingConditions are required to use bindingFailureConditions"))
	}
	if len(failed) == 0 && len(wanted) > 0 {
		errs = append(errs, field.Invalid(bad, failed, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}
