// Package csi describes the kinds CSIDriver and CSINode of storage.k8s.io/v1: how a storage driver wants to be treated,
// and which drivers a node has.
package csi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definitions returns the two kinds.
func Definitions() []resource.Definition {
	return []resource.Definition{
		resource.Of[storagev1.CSIDriver, storagev1.CSIDriverList](resource.Kind{
			GroupVersion: storagev1.SchemeGroupVersion, Kind: "CSIDriver", Plural: "csidrivers", Singular: "csidriver",
			ClusterScoped: true,
		}, resource.Rules[storagev1.CSIDriver]{
			Default:  func(d *storagev1.CSIDriver) { Default(&d.Spec) },
			Validate: func(_ context.Context, d *storagev1.CSIDriver) field.ErrorList { return ValidateDriver(d) },
			ValidateUpdate: func(_ context.Context, d, old *storagev1.CSIDriver) field.ErrorList {
				return append(ValidateDriver(d), validateDriverStays(&d.Spec, &old.Spec)...)
			},
			PrepareForUpdate: func(_ context.Context, d, old *storagev1.CSIDriver) {
				// A new driver has no generation; it counts changes.
				if !alike.Values(d.Spec, old.Spec) {
					d.Generation = old.Generation + 1
				}
			},
			WarningsOnCreate:       func(_ context.Context, d *storagev1.CSIDriver) []string { return warnings(d) },
			WarningsOnUpdate:       func(_ context.Context, d, _ *storagev1.CSIDriver) []string { return warnings(d) },
			RequireResourceVersion: true,
			Table:                  driverTable,
		}),
		resource.Of[storagev1.CSINode, storagev1.CSINodeList](resource.Kind{
			GroupVersion: storagev1.SchemeGroupVersion, Kind: "CSINode", Plural: "csinodes", Singular: "csinode",
			ClusterScoped: true,
		}, resource.Rules[storagev1.CSINode]{
			Validate: func(_ context.Context, n *storagev1.CSINode) field.ErrorList { return ValidateNode(n, nil) },
			ValidateUpdate: func(_ context.Context, n, old *storagev1.CSINode) field.ErrorList {
				return ValidateNode(n, old)
			},
			RequireResourceVersion: true,
			Table: table.Of(func(n *storagev1.CSINode, now time.Time) []any {
				return []any{n.Name, int64(len(n.Spec.Drivers)), table.Since(n.CreationTimestamp, now)}
			}, table.Name, table.Column{Name: "Drivers", Type: "integer", Description: "How many drivers the node has."},
				table.Age),
		}),
	}
}

// Default fills in what a driver does not say of itself.
func Default(s *storagev1.CSIDriverSpec) {
	fill(&s.AttachRequired, true)
	fill(&s.PodInfoOnMount, false)
	fill(&s.StorageCapacity, false)
	fill(&s.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	fill(&s.RequiresRepublish, false)
	fill(&s.SELinuxMount, false)
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

func fill[T any](to **T, value T) {
	if *to == nil {
		*to = ptr.To(value)
	}
}

// ValidateDriver checks a driver.
func ValidateDriver(d *storagev1.CSIDriver) field.ErrorList {
	errs := ValidateName(d.Name, field.NewPath("metadata", "name"))
	path := field.NewPath("spec")
	if p := d.Spec.FSGroupPolicy; p != nil {
		known := []storagev1.FSGroupPolicy{
			storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy,
		}
		if !slices.Contains(known, *p) {
			errs = append(errs, field.NotSupported(path.Child("fsGroupPolicy"), *p, known))
		}
	}
	errs = append(errs, validateTokens(d.Spec.TokenRequests, path.Child("tokenRequests"))...)
	for _, mode := range enough.Each(d.Spec.VolumeLifecycleModes, &errs) {
		known := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
		if !slices.Contains(known, mode) {
			errs = append(errs, field.NotSupported(path.Child("volumeLifecycleModes"), mode, known))
		}
	}
	if s := d.Spec.NodeAllocatableUpdatePeriodSeconds; s != nil && *s < 10 {
		errs = append(errs, field.Invalid(
			path.Child("nodeAllocatableUpdatePeriodSeconds"), *s, "must be greater than or equal to 10 seconds",
		))
	}
	if in := d.Spec.ServiceAccountTokenInSecrets; in != nil && len(d.Spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(
			path.Child("serviceAccountTokenInSecrets"), *in,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified",
		))
	}
	return errs
}

func validateTokens(requests []storagev1.TokenRequest, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range enough.Each(requests, &errs) {
		at := path.Index(i)
		if seen[r.Audience] {
			errs = append(errs, field.Duplicate(at.Child("audience"), r.Audience))
			continue
		}
		seen[r.Audience] = true
		switch s := r.ExpirationSeconds; {
		case s == nil:
		case *s < 10*60:
			errs = append(errs, field.Invalid(
				at.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes",
			))
		case *s > 1<<32:
			errs = append(errs, field.Invalid(
				at.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds",
			))
		}
	}
	return errs
}

func warnings(d *storagev1.CSIDriver) []string {
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	return []string{
		"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible " +
			"logging of tokens in volume attributes",
	}
}

// validateDriverStays checks that nobody takes back what volumes rely on.
func validateDriverStays(s, old *storagev1.CSIDriverSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := alike.Unchanged(s.AttachRequired, old.AttachRequired, path.Child("attachedRequired"))
	return append(errs, alike.Unchanged(
		s.VolumeLifecycleModes, old.VolumeLifecycleModes, path.Child("volumeLifecycleModes"),
	)...)
}

// ValidateName checks the name of a driver.
func ValidateName(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "")}
	case len(name) > 63:
		errs = append(errs, field.TooLong(path, name, 63))
	}
	for _, text := range utilvalidation.IsDNS1123Subdomain(strings.ToLower(name)) {
		errs = append(errs, field.Invalid(path, name, text))
	}
	return errs
}

// ValidateNode checks a node's drivers; old is nil for a new one. A driver that stays cannot be changed, because
// volumes are on the node by its ID.
func ValidateNode(n, old *storagev1.CSINode) field.ErrorList {
	path := field.NewPath("spec", "drivers")
	var errs field.ErrorList
	seen, before := map[string]bool{}, map[string]*storagev1.CSINodeDriver{}
	if old != nil {
		for i := range old.Spec.Drivers {
			before[old.Spec.Drivers[i].Name] = &old.Spec.Drivers[i]
		}
	}
	for i := range enough.Each(n.Spec.Drivers, &errs) {
		d, at := &n.Spec.Drivers[i], path.Index(i)
		errs = append(errs, ValidateName(d.Name, at.Child("name"))...)
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		seen[d.Name] = true
		errs = append(errs, validateNodeDriver(d, at)...)
		was := before[d.Name]
		if was != nil && (was.NodeID != d.NodeID || !alike.Values(was.TopologyKeys, d.TopologyKeys)) {
			errs = append(errs, field.Invalid(path, d.Name, "field is immutable"))
		}
	}
	return errs
}

func validateNodeDriver(d *storagev1.CSINodeDriver, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case d.NodeID == "":
		errs = append(errs, field.Required(at.Child("nodeID"), d.NodeID))
	case len(d.NodeID) > 256:
		errs = append(errs, field.Invalid(at.Child("nodeID"), d.NodeID, "must be 256 characters or less"))
	}
	if d.Allocatable != nil && d.Allocatable.Count != nil && *d.Allocatable.Count < 0 {
		errs = append(errs, field.Invalid(
			at.Child("allocatable", "count"), *d.Allocatable.Count, "must be greater than or equal to 0",
		))
	}
	seen := map[string]bool{}
	for _, key := range enough.Each(d.TopologyKeys, &errs) {
		if key == "" {
			errs = append(errs, field.Required(at, key))
		}
		if seen[key] {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen[key] = true
		for _, text := range utilvalidation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(at, key, text))
		}
	}
	return errs
}

var driverTable = table.Of(func(d *storagev1.CSIDriver, now time.Time) []any {
	tokens := make([]string, len(d.Spec.TokenRequests))
	for i, r := range d.Spec.TokenRequests {
		tokens[i] = r.Audience
	}
	modes := make([]string, len(d.Spec.VolumeLifecycleModes))
	for i, m := range d.Spec.VolumeLifecycleModes {
		modes[i] = string(m)
	}
	list := strings.Join(tokens, ",")
	if list == "" {
		list = "<unset>"
	}
	return []any{
		d.Name,
		ptr.Deref(d.Spec.AttachRequired, true),
		ptr.Deref(d.Spec.PodInfoOnMount, false),
		ptr.Deref(d.Spec.StorageCapacity, false),
		list,
		fmt.Sprint(ptr.Deref(d.Spec.RequiresRepublish, false)),
		strings.Join(modes, ","),
		table.Since(d.CreationTimestamp, now),
	}
},
	table.Name,
	table.Column{
		Name:        "AttachRequired",
		Type:        "boolean",
		Description: "Whether volumes are attached to nodes before they are mounted.",
	},
	table.Column{
		Name:        "PodInfoOnMount",
		Type:        "boolean",
		Description: "Whether the driver is told for which pod it mounts.",
	},
	table.Column{Name: "StorageCapacity", Type: "boolean", Description: "Whether the driver tells how much it can store."},
	table.Column{Name: "TokenRequests", Description: "For whom the driver gets tokens of the pod's account."},
	table.Column{
		Name:        "RequiresRepublish",
		Type:        "string",
		Description: "Whether the driver is called again and again for a mounted volume.",
	},
	table.Column{Name: "Modes", Description: "Which volumes the driver makes."},
	table.Age,
)
