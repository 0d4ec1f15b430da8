package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/placement"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

func slice() resource.Definition {
	return resource.Of[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](resource.Kind{
		GroupVersion: resourcev1.SchemeGroupVersion, Kind: "ResourceSlice", Plural: "resourceslices",
		Singular: "resourceslice", ClusterScoped: true,
	}, resource.Rules[resourcev1.ResourceSlice]{
		Spec:             func(s *resourcev1.ResourceSlice) any { return &s.Spec },
		Default:          func(s *resourcev1.ResourceSlice) { defaultTaints(&s.Spec) },
		PrepareForCreate: func(_ context.Context, s *resourcev1.ResourceSlice) { dropLater(&s.Spec) },
		PrepareForUpdate: func(_ context.Context, s, _ *resourcev1.ResourceSlice) { dropLater(&s.Spec) },
		Validate: func(_ context.Context, s *resourcev1.ResourceSlice) field.ErrorList {
			return ValidateSlice(s, nil)
		},
		ValidateUpdate: func(_ context.Context, s, old *resourcev1.ResourceSlice) field.ErrorList {
			return ValidateSlice(s, old)
		},
		WarningsOnCreate: func(_ context.Context, s *resourcev1.ResourceSlice) []string { return sliceWarnings(s) },
		WarningsOnUpdate: func(_ context.Context, s, _ *resourcev1.ResourceSlice) []string { return sliceWarnings(s) },
		Fields: func(s *resourcev1.ResourceSlice) fields.Set {
			return fields.Set{
				resourcev1.ResourceSliceSelectorNodeName: ptr.Deref(s.Spec.NodeName, ""),
				resourcev1.ResourceSliceSelectorDriver:   s.Spec.Driver,
				resourcev1.ResourceSliceSelectorPoolName: s.Spec.Pool.Name,
			}
		},
		FieldLabels: []string{
			resourcev1.ResourceSliceSelectorNodeName, resourcev1.ResourceSliceSelectorDriver,
			resourcev1.ResourceSliceSelectorPoolName,
		},
		IndexedFields: []string{resourcev1.ResourceSliceSelectorNodeName},
		Table: table.Of(func(s *resourcev1.ResourceSlice, now time.Time) []any {
			return []any{
				s.Name,
				ptr.Deref(s.Spec.NodeName, ""),
				s.Spec.Driver,
				s.Spec.Pool.Name,
				table.Since(s.CreationTimestamp, now),
			}
		}, table.Name,
			table.Column{Name: "Node", Description: "The node whose devices these are."},
			table.Column{Name: "Driver", Description: "The driver that offers the devices."},
			table.Column{Name: "Pool", Description: "The pool to which the devices belong."},
			table.Age),
	})
}

func sliceWarnings(s *resourcev1.ResourceSlice) []string {
	if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
		return nil
	}
	return []string{fmt.Sprintf(
		"spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver,
	)}
}

// dropLater takes away what only later versions act on.
func dropLater(s *resourcev1.ResourceSliceSpec) {
	s.PartitionTypeAttribute, s.SkipNodeOperations = nil, nil
	for i := range s.Devices {
		d := &s.Devices[i]
		d.NodeAllocatableResources = nil
		for j := range d.ConsumesCounters {
			d.ConsumesCounters[j].CompatibilityGroups = nil
		}
		for name, a := range d.Attributes {
			a.IntValues, a.BoolValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			d.Attributes[name] = a
		}
	}
}

// ValidateSlice checks a slice, metadata aside. Old is nil for a new one.
func ValidateSlice(s, old *resourcev1.ResourceSlice) field.ErrorList {
	spec := &s.Spec
	errs := validateDriver(spec.Driver, specPath.Child("driver"))
	errs = append(errs, validateSlicePool(&spec.Pool, specPath.Child("pool"))...)
	var before *resourcev1.ResourceSliceSpec
	if old != nil {
		before = &old.Spec
		errs = append(errs, alike.Unchanged(
			spec.Pool.Name, before.Pool.Name, specPath.Child("pool", "name"),
		)...)
		errs = append(errs, alike.Unchanged(spec.Driver, before.Driver, specPath.Child("driver"))...)
		errs = append(errs, alike.Unchanged(spec.NodeName, before.NodeName, specPath.Child("nodeName"))...)
	}
	errs = append(errs, validateNodes(spec, specPath)...)
	if spec.SharedCounters != nil && spec.Devices != nil {
		errs = append(errs, field.Invalid(specPath, "", "only one of `sharedCounters` or `devices` is allowed"))
	}
	errs = append(errs, distinct(spec.Devices, mostDevices(spec), specPath.Child("devices"),
		func(d resourcev1.Device) string { return d.Name },
		func(d resourcev1.Device, at *field.Path) field.ErrorList {
			return validateDevice(&d, deviceIn(before, d.Name), ptr.Deref(spec.PerDeviceNodeSelection, false), at)
		})...)
	return append(errs, distinct(
		spec.SharedCounters, resourcev1.ResourceSliceMaxCounterSets, specPath.Child("sharedCounters"),
		func(c resourcev1.CounterSet) string { return c.Name },
		func(c resourcev1.CounterSet, at *field.Path) field.ErrorList {
			return append(validateSetName(c.Name, at.Child("name")),
				validateCounters(c.Counters, resourcev1.ResourceSliceMaxCountersPerCounterSet, at.Child("counters"))...)
		},
	)...)
}

func deviceIn(spec *resourcev1.ResourceSliceSpec, name string) *resourcev1.Device {
	if spec == nil {
		return nil
	}
	i := slices.IndexFunc(spec.Devices, func(d resourcev1.Device) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &spec.Devices[i]
}

func mostDevices(s *resourcev1.ResourceSliceSpec) int {
	for _, d := range s.Devices {
		if len(d.Taints) > 0 || len(d.ConsumesCounters) > 0 {
			return resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
		}
	}
	return resourcev1.ResourceSliceMaxDevices
}

func validateSlicePool(p *resourcev1.ResourcePool, path *field.Path) field.ErrorList {
	errs := validatePool(p.Name, path.Child("name"))
	if p.ResourceSliceCount <= 0 {
		errs = append(errs, field.Invalid(
			path.Child("resourceSliceCount"), p.ResourceSliceCount, "must be greater than zero",
		))
	}
	if p.Generation < 0 {
		errs = append(errs, field.Invalid(path.Child("generation"), p.Generation, "must be greater than or equal to zero"))
	}
	return errs
}

// nodes are the ways to say on which nodes devices are, of which exactly one is taken.
type nodes struct {
	name     *string
	selector *corev1.NodeSelector
	all      *bool
	set      []string
	errs     field.ErrorList
}

func (n *nodes) named(path *field.Path, empty string) {
	switch {
	case n.name == nil:
	case *n.name == "":
		n.errs = append(n.errs, field.Invalid(path, "", empty))
	default:
		n.set = append(n.set, "`nodeName`")
		n.errs = append(n.errs, validateSubdomain(*n.name, path)...)
	}
}

func (n *nodes) flag(name string, value *bool, path *field.Path) {
	switch {
	case value == nil:
	case *value:
		n.set = append(n.set, "`"+name+"`")
	default:
		n.errs = append(n.errs, field.Invalid(path.Child(name), false, "must be either unset or set to true"))
	}
}

func (n *nodes) selected(path *field.Path) {
	if n.selector != nil {
		n.set = append(n.set, "`nodeSelector`")
		n.errs = append(n.errs, placement.NodeSelector(n.selector, path)...)
	}
}

// one adds what is wrong unless exactly one way was taken.
func (n *nodes) one(path *field.Path, none, several string) field.ErrorList {
	switch len(n.set) {
	case 0:
		n.errs = append(n.errs, field.Required(path, none))
	case 1:
	default:
		n.errs = append(n.errs, field.Invalid(path, fmt.Sprintf("{%s}", strings.Join(n.set, ", ")), several))
	}
	return n.errs
}

func validateNodes(s *resourcev1.ResourceSliceSpec, path *field.Path) field.ErrorList {
	n := nodes{name: s.NodeName, selector: s.NodeSelector, all: s.AllNodes}
	n.named(path.Child("nodeName"), "must be either unset or set to a non-empty string")
	n.selected(path.Child("nodeSelector"))
	if s.NodeSelector != nil && len(s.NodeSelector.NodeSelectorTerms) != 1 {
		n.errs = append(n.errs, field.Invalid(
			path.Child("nodeSelector", "nodeSelectorTerms"), s.NodeSelector.NodeSelectorTerms,
			"must have exactly one node selector term",
		))
	}
	n.flag("allNodes", s.AllNodes, path)
	n.flag("perDeviceNodeSelection", s.PerDeviceNodeSelection, path)
	const one = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	return n.one(path, one, one+", but multiple fields are set")
}

// validateDeviceNodes checks where one device is, of a slice whose devices say so each.
func validateDeviceNodes(d *resourcev1.Device, each bool, path *field.Path) field.ErrorList {
	if !each {
		if d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil {
			return field.ErrorList{field.Invalid(
				path, nil,
				"`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the "+
					"ResourceSlice spec",
			)}
		}
		return nil
	}
	n := nodes{name: d.NodeName, selector: d.NodeSelector, all: d.AllNodes}
	n.named(path.Child("nodeName"), "must not be empty")
	n.selected(path.Child("nodeSelector"))
	n.flag("allNodes", d.AllNodes, path)
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is " +
		"set to true in the ResourceSlice spec"
	return n.one(path, one, one)
}

func validateSetName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateLabel(name, path)
}

func validateCounters(counters map[string]resourcev1.Counter, most int, path *field.Path) field.ErrorList {
	switch {
	case len(counters) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(counters) > most:
		return field.ErrorList{field.TooMany(path, len(counters), most)}
	}
	var errs field.ErrorList
	for name := range enough.Entries(counters, &errs) {
		errs = append(errs, invalid(path, name, utilvalidation.IsDNS1123Label(name))...)
	}
	return errs
}
