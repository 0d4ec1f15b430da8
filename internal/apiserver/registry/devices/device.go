package devices

import (
	"fmt"
	"regexp"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
)

// validateDevice checks a device. Old is the same one before an update, nil for a new one.
func validateDevice(d, old *resourcev1.Device, eachHasNodes bool, path *field.Path) field.ErrorList {
	errs := validateLabel(d.Name, path.Child("name"))
	if n := len(d.Attributes) + len(d.Capacity); n > resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
		errs = append(errs, field.Invalid(
			path, n,
			fmt.Sprintf(
				"the total number of attributes and capacities must not exceed %d",
				resourcev1.ResourceSliceMaxAttributesAndCapacitiesPerDevice,
			),
		))
	}
	attributes, capacity := path.Child("attributes"), path.Child("capacity")
	for name, a := range enough.Entries(d.Attributes, &errs) {
		errs = append(errs, validateQualified(name, attributes)...)
		errs = append(errs, validateAttribute(a, attributes.Key(shortened(string(name))))...)
	}
	shared := ptr.Deref(d.AllowMultipleAllocations, false)
	for name, c := range enough.Entries(d.Capacity, &errs) {
		errs = append(errs, validateQualified(name, capacity)...)
		errs = append(errs, validateCapacity(c, shared, capacity.Key(shortened(string(name))))...)
	}
	if old == nil || !alike.Values(old.Taints, d.Taints) {
		errs = append(errs, each(d.Taints, resourcev1.DeviceTaintsMaxLength, path.Child("taints"), validateTaint)...)
	}
	errs = append(errs, distinct(
		d.ConsumesCounters, resourcev1.ResourceSliceMaxDeviceCounterConsumptionsPerDevice, path.Child("consumesCounters"),
		func(c resourcev1.DeviceCounterConsumption) string { return c.CounterSet },
		func(c resourcev1.DeviceCounterConsumption, at *field.Path) field.ErrorList {
			return append(validateSetName(c.CounterSet, at.Child("counterSet")),
				validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerDeviceCounterConsumption,
					at.Child("counters"))...)
		},
	)...)
	errs = append(errs, validateDeviceNodes(d, eachHasNodes, path)...)
	return append(errs, validateBinding(d.BindingConditions, d.BindingFailureConditions, path)...)
}

// shortened leaves out the middle of a key that is too long for a message.
func shortened(key string) string {
	const most = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
	if len(key) <= most {
		return key
	}
	rest := most - len("...")
	return key[:(rest+1)/2] + "..." + key[len(key)-rest/2:]
}

var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
	`(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?` +
	`(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$`)

func validateAttribute(a resourcev1.DeviceAttribute, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := a.StringValue; s != nil && len(*s) > resourcev1.DeviceAttributeMaxValueLength {
		errs = append(errs, field.TooLong(path.Child("string"), "", resourcev1.DeviceAttributeMaxValueLength))
	}
	if v, at := a.VersionValue, path.Child("version"); v != nil {
		if !semver.MatchString(*v) {
			errs = append(errs, field.Invalid(at, *v, "must be a string compatible with semver.org spec 2.0.0"))
		}
		if len(*v) > resourcev1.DeviceAttributeMaxValueLength {
			errs = append(errs, field.TooLong(at, "", resourcev1.DeviceAttributeMaxValueLength))
		}
	}
	values := 0
	for _, set := range []bool{a.BoolValue != nil, a.IntValue != nil, a.StringValue != nil, a.VersionValue != nil} {
		if set {
			values++
		}
	}
	switch values {
	case 0:
		errs = append(errs, field.Invalid(path, "", "exactly one value must be specified"))
	case 1:
	default:
		errs = append(errs, field.Invalid(path, a, "exactly one value must be specified"))
	}
	return errs
}

func validateTaint(t resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	if t.Value != "" {
		errs = append(errs, invalid(path.Child("value"), t.Value, utilvalidation.IsValidLabelValue(t.Value))...)
	}
	at := path.Child("effect")
	switch {
	case t.Effect == "":
		errs = append(errs, field.Required(at, ""))
	case !slices.Contains(effects, t.Effect):
		errs = append(errs, field.NotSupported(at, t.Effect, effects))
	}
	return errs
}

// validateCapacity checks what a device has of something, and how it is shared out.
func validateCapacity(c resourcev1.DeviceCapacity, shared bool, path *field.Path) field.ErrorList {
	policy, at := c.RequestPolicy, path.Child("requestPolicy")
	switch {
	case policy == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(at, "allowMultipleAllocations must be true")}
	case len(policy.ValidValues) > 0 && policy.ValidRange != nil:
		return field.ErrorList{field.Forbidden(
			at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`,
		)}
	case len(policy.ValidValues) > 0 && policy.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validValues is defined")}
	case len(policy.ValidValues) > 0:
		return validateValues(*policy.Default, c.Value, policy.ValidValues, at.Child("validValues"))
	case policy.ValidRange != nil && policy.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validRange is defined")}
	case policy.ValidRange != nil:
		return validateRange(*policy.Default, c.Value, policy.ValidRange, at.Child("validRange"))
	}
	return nil
}

// mostValues bounds how many values a policy lists.
const mostValues = 10

func validateValues(usual, all resource.Quantity, values []resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(path.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	errs = append(errs, distinct(values, mostValues, path,
		func(v resource.Quantity) string { return fmt.Sprint(v.Value()) },
		func(v resource.Quantity, at *field.Path) field.ErrorList {
			if v.Cmp(all) > 0 {
				return field.ErrorList{field.Invalid(
					at, v.String(), fmt.Sprintf("option is larger than capacity value: %s", all.String()),
				)}
			}
			return nil
		})...)
	if !slices.ContainsFunc(values, func(v resource.Quantity) bool { return v.Cmp(usual) == 0 }) {
		errs = append(errs, field.Invalid(path, usual.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

func validateRange(usual, all resource.Quantity, r *resourcev1.CapacityRequestPolicyRange,
	path *field.Path) field.ErrorList {
	low := path.Child("min")
	if r.Min == nil {
		return field.ErrorList{field.Required(low, "required when validRange is defined")}
	}
	var errs field.ErrorList
	must := func(good bool, at *field.Path, value *resource.Quantity, text string, than *resource.Quantity) {
		if !good {
			errs = append(errs, field.Invalid(at, value.String(), text+": "+than.String()))
		}
	}
	must(r.Min.Cmp(all) <= 0, low, r.Min, "min is larger than capacity value", &all)
	must(usual.Cmp(*r.Min) >= 0, low, &usual, "default is less than min", r.Min)
	if r.Max != nil {
		high := path.Child("max")
		must(r.Min.Cmp(*r.Max) <= 0, high, r.Min, "min is larger than max", r.Max)
		must(r.Max.Cmp(all) <= 0, high, r.Max, "max is larger than capacity value", &all)
		must(usual.Cmp(*r.Max) <= 0, high, &usual, "default is more than max", r.Max)
	}
	if r.Step == nil {
		return errs
	}
	at := path.Child("step")
	if r.Step.Value() <= 0 {
		return append(errs, field.Invalid(at, r.Step.String(), "must be greater than zero"))
	}
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	must(first.Cmp(all) <= 0, at, r.Step, fmt.Sprintf("one step %s is larger than capacity value", first.String()), &all)
	errs = append(errs, validateStep(usual, r, at)...)
	if r.Max != nil {
		errs = append(errs, validateStep(*r.Max, r, at)...)
	}
	return errs
}

func validateStep(value resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, path *field.Path) field.ErrorList {
	if (value.Value()-r.Min.Value())%r.Step.Value() == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(
		path, value.String(),
		fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String()),
	)}
}
