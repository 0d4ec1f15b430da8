package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
	"github.com/everynode/everynode/internal/objects/volume"
)

func storageClass() resource.Definition {
	return resource.Of[storagev1.StorageClass, storagev1.StorageClassList](resource.Kind{
		GroupVersion: storagev1.SchemeGroupVersion, Kind: "StorageClass", Plural: "storageclasses", Singular: "storageclass",
		ShortNames: []string{"sc"}, ClusterScoped: true,
	}, resource.Rules[storagev1.StorageClass]{
		Default: func(c *storagev1.StorageClass) {
			if c.ReclaimPolicy == nil {
				c.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimDelete)
			}
			if c.VolumeBindingMode == nil {
				c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
			}
		},
		Validate: func(_ context.Context, c *storagev1.StorageClass) field.ErrorList { return ValidateClass(c) },
		ValidateUpdate: func(_ context.Context, c, old *storagev1.StorageClass) field.ErrorList {
			return append(ValidateClass(c), validateClassStays(c, old)...)
		},
		WarningsOnCreate: func(_ context.Context, c *storagev1.StorageClass) []string { return classWarnings(c) },
		WarningsOnUpdate: func(_ context.Context, c, _ *storagev1.StorageClass) []string { return classWarnings(c) },
		Table:            classTable,
	})
}

// ValidateClass checks a StorageClass, metadata aside.
func ValidateClass(c *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(c.Parameters, field.NewPath("parameters"))...)
	policies := []corev1.PersistentVolumeReclaimPolicy{
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain,
	}
	if p := c.ReclaimPolicy; p != nil && *p != "" && *p != policies[0] && *p != policies[1] {
		errs = append(errs, field.NotSupported(field.NewPath("reclaimPolicy"), *p, policies))
	}
	modes := []storagev1.VolumeBindingMode{storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer}
	switch m := c.VolumeBindingMode; {
	case m == nil:
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	case *m != modes[0] && *m != modes[1]:
		errs = append(errs, field.NotSupported(field.NewPath("volumeBindingMode"), *m, modes))
	}
	return append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

func validateTopologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	before := map[string]int{}
	for i, term := range enough.Each(terms, &errs) {
		at := path.Index(i).Child("matchLabelExpressions")
		asked := map[string]sets.Set[string]{}
		for j, r := range enough.Each(term.MatchLabelExpressions, &errs) {
			values := sets.New(r.Values...)
			errs = append(errs, validateTopology(r, at.Index(j))...)
			if _, twice := asked[r.Key]; twice {
				errs = append(errs, field.Duplicate(at.Index(j).Child("key"), r.Key))
			}
			asked[r.Key] = values
		}
		same := written(asked)
		for range min(before[same], maxTwins) {
			errs = append(errs, field.Duplicate(at, "")) // As kube-apiserver, one for each that is the same.
		}
		before[same]++
	}
	return errs
}

// maxTwins is how many of the terms that are the same as one are told.
const maxTwins = 10

// written is the same for terms that ask for the same, and for no others.
func written(asked map[string]sets.Set[string]) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		fmt.Fprintf(&b, "%q%q", key, sets.List(asked[key]))
	}
	return b.String()
}

func validateTopology(r corev1.TopologySelectorLabelRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("values")
	if len(r.Values) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	seen := sets.New[string]()
	for i, value := range enough.Each(r.Values, &errs) {
		if seen.Has(value) {
			errs = append(errs, field.Duplicate(at.Index(i), value))
		}
		seen.Insert(value)
	}
	return append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
}

// validateClassStays checks that what volumes were made by does not change under them.
func validateClassStays(c, old *storagev1.StorageClass) field.ErrorList {
	errs := alike.Unchanged(c.Parameters, old.Parameters, field.NewPath("parameters"))
	errs = append(errs, alike.Unchanged(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, alike.Unchanged(
		c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"),
	)...)
	return append(errs, alike.Unchanged(
		c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"),
	)...)
}

func classWarnings(c *storagev1.StorageClass) (out []string) {
	for i, term := range c.AllowedTopologies {
		for j, r := range term.MatchLabelExpressions {
			if why, old := warnings.RenamedLabel(r.Key); old {
				at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key")
				out = append(out, fmt.Sprintf("%s: %s", at, why))
			}
		}
	}
	return out
}

var classTable = table.Of(func(c *storagev1.StorageClass, now time.Time) []any {
	name := c.Name
	if volume.IsDefaultClass(c) {
		name += " (default)"
	}
	return []any{name, c.Provisioner, string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
		string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate)), ptr.Deref(c.AllowVolumeExpansion, false),
		table.Since(c.CreationTimestamp, now)}
},
	table.Name,
	table.Column{Name: "Provisioner", Description: "Who makes volumes of the class."},
	table.Column{Name: "ReclaimPolicy", Description: "What becomes of its volumes when their claims are gone."},
	table.Column{Name: "VolumeBindingMode", Description: "When claims get their volumes."},
	table.Column{Name: "AllowVolumeExpansion", Description: "Whether claims may grow."},
	table.Age,
)

func attributesClass() resource.Definition {
	return resource.Of[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList](resource.Kind{
		GroupVersion: storagev1.SchemeGroupVersion, Kind: "VolumeAttributesClass", Plural: "volumeattributesclasses",
		Singular:   "volumeattributesclass",
		ShortNames: []string{"vac"}, ClusterScoped: true,
	}, resource.Rules[storagev1.VolumeAttributesClass]{
		Validate: func(_ context.Context, c *storagev1.VolumeAttributesClass) field.ErrorList {
			return ValidateAttributes(c)
		},
		ValidateUpdate: func(_ context.Context, c, old *storagev1.VolumeAttributesClass) field.ErrorList {
			var errs field.ErrorList
			if c.DriverName != old.DriverName {
				errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
			}
			if !maps.Equal(c.Parameters, old.Parameters) {
				errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
			}
			return append(errs, ValidateAttributes(c)...)
		},
		Table: table.Of(func(c *storagev1.VolumeAttributesClass, now time.Time) []any {
			return []any{c.Name, c.DriverName, table.Since(c.CreationTimestamp, now)}
		}, table.Name, table.Column{Name: "DriverName", Description: "The driver that knows the attributes."}, table.Age),
	})
}

// ValidateAttributes checks a VolumeAttributesClass, metadata aside.
func ValidateAttributes(c *storagev1.VolumeAttributesClass) field.ErrorList {
	errs := validateProvisioner(c.DriverName, field.NewPath("driverName"))
	at := field.NewPath("parameters")
	errs = append(errs, validateParameters(c.Parameters, at)...)
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(at, "must contain at least one key/value pair"))
	}
	return errs
}
