// Package priorityclass describes the kind PriorityClass of scheduling.k8s.io/v1.
package priorityclass

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[schedulingv1.PriorityClass, schedulingv1.PriorityClassList](resource.Kind{
		GroupVersion: schedulingv1.SchemeGroupVersion, Kind: "PriorityClass",
		Plural: "priorityclasses", Singular: "priorityclass", ShortNames: []string{"pc"}, ClusterScoped: true,
	}, resource.Rules[schedulingv1.PriorityClass]{
		Default: func(c *schedulingv1.PriorityClass) {
			if c.PreemptionPolicy == nil {
				c.PreemptionPolicy = ptr.To(corev1.PreemptLowerPriority)
			}
		},
		PrepareForCreate: func(_ context.Context, c *schedulingv1.PriorityClass) { c.Generation = 1 },
		Validate:         func(_ context.Context, c *schedulingv1.PriorityClass) field.ErrorList { return Validate(c) },
		ValidateUpdate: func(_ context.Context, c, old *schedulingv1.PriorityClass) field.ErrorList {
			return ValidateUpdate(c, old)
		},
		Table: printer,
	})
}

const (
	// HighestUserPriority is the highest priority that users can define.
	HighestUserPriority = 1_000_000_000
	systemPrefix        = "system-"
)

// System are the priorities that are reserved for the cluster's own parts.
var System = map[string]int32{
	"system-node-critical":    2*HighestUserPriority + 1000,
	"system-cluster-critical": 2 * HighestUserPriority,
}

// Validate checks a new class, metadata aside.
func Validate(c *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(c.Name, systemPrefix) {
		if err := knownSystem(c); err != nil {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+err.Error()))
		}
	} else if c.Value > HighestUserPriority {
		errs = append(errs, field.Forbidden(
			field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", HighestUserPriority),
		))
	}
	if p := c.PreemptionPolicy; p != nil {
		path := field.NewPath("preemptionPolicy")
		switch *p {
		case corev1.PreemptLowerPriority, corev1.PreemptNever:
		case "":
			errs = append(errs, field.Required(path, ""))
		default:
			errs = append(errs, field.NotSupported(path, *p, []corev1.PreemptionPolicy{
				corev1.PreemptLowerPriority, corev1.PreemptNever,
			}))
		}
	}
	return errs
}

func knownSystem(c *schedulingv1.PriorityClass) error {
	value, ok := System[c.Name]
	switch {
	case !ok:
		return fmt.Errorf("%v is not a known system priority class", c.Name)
	case c.Value != value:
		return fmt.Errorf("value of %v PriorityClass must be %v", c.Name, value)
	case c.GlobalDefault:
		return fmt.Errorf("globalDefault of %v PriorityClass must be %v", c.Name, false)
	}
	return nil
}

// ValidateUpdate checks a changed class, metadata aside: pods have taken over
// its value, so it stays.
func ValidateUpdate(c, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, alike.Unchanged(
		c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"),
	)...)
}

var printer = table.Of(func(c *schedulingv1.PriorityClass, now time.Time) []any {
	return []any{
		c.Name,
		int64(c.Value),
		c.GlobalDefault,
		table.Since(c.CreationTimestamp, now),
		string(ptr.Deref(c.PreemptionPolicy, "")),
	}
},
	table.Name,
	table.Column{Name: "Value", Type: "integer", Description: "Priority of pods of this class."},
	table.Column{Name: "Global-Default", Type: "boolean", Description: "Whether pods without a class get this one."},
	table.Age,
	table.Column{Name: "PreemptionPolicy", Description: "Whether pods of this class push out others."},
)
