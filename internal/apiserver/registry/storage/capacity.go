package storage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

func capacity() resource.Definition {
	return resource.Of[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList](resource.Kind{
		GroupVersion: storagev1.SchemeGroupVersion, Kind: "CSIStorageCapacity", Plural: "csistoragecapacities",
		Singular: "csistoragecapacity",
	}, resource.Rules[storagev1.CSIStorageCapacity]{
		Validate: func(_ context.Context, c *storagev1.CSIStorageCapacity) field.ErrorList {
			return ValidateCapacity(c, nil)
		},
		ValidateUpdate: func(_ context.Context, c, old *storagev1.CSIStorageCapacity) field.ErrorList {
			return ValidateCapacity(c, old)
		},
		WarningsOnCreate: func(_ context.Context, c *storagev1.CSIStorageCapacity) []string {
			return selectorWarnings(c.NodeTopology, field.NewPath("nodeTopology"))
		},
		WarningsOnUpdate: func(_ context.Context, c, _ *storagev1.CSIStorageCapacity) []string {
			return selectorWarnings(c.NodeTopology, field.NewPath("nodeTopology"))
		},
		RequireResourceVersion: true,
		Table: table.Of(func(c *storagev1.CSIStorageCapacity, _ time.Time) []any {
			amount := "<unset>"
			if c.Capacity != nil {
				amount = c.Capacity.String()
			}
			return []any{c.Name, c.StorageClassName, amount}
		},
			table.Name,
			table.Column{Name: "StorageClassName", Description: "The class of the volumes that there is room for."},
			table.Column{Name: "Capacity", Description: "How much room there is."},
		),
	})
}

// ValidateCapacity checks a CSIStorageCapacity, metadata aside; old is nil for a new one. A selector that was stored
// stays good.
func ValidateCapacity(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	at := field.NewPath("nodeTopology")
	options := metav1validation.LabelSelectorValidationOptions{}
	if old != nil && len(enough.LabelSelector(old.NodeTopology, options, nil)) > 0 {
		options.AllowInvalidLabelValueInSelector = true
	}
	errs := enough.LabelSelector(c.NodeTopology, options, at)
	class := field.NewPath("storageClassName")
	errs = append(errs, validateClassName(c.StorageClassName, class)...)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), validation.IsNegativeErrorMsg))
	}
	if old == nil {
		return errs
	}
	if !alike.Values(c.NodeTopology, old.NodeTopology) {
		errs = append(errs, field.Invalid(at, c.NodeTopology, "field is immutable"))
	}
	if c.StorageClassName != old.StorageClassName {
		errs = append(errs, field.Invalid(class, c.StorageClassName, "field is immutable"))
	}
	return errs
}

func selectorWarnings(s *metav1.LabelSelector, path *field.Path) (out []string) {
	if s == nil {
		return nil
	}
	for i, e := range s.MatchExpressions {
		if why, old := warnings.RenamedLabel(e.Key); old {
			out = append(out, fmt.Sprintf("%s: %s is %s", path.Child("matchExpressions").Index(i).Child("key"), e.Key, why))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if why, old := warnings.RenamedLabel(key); old {
			out = append(out, fmt.Sprintf("%s: %s", path.Child("matchLabels").Child(key), why))
		}
	}
	return out
}
