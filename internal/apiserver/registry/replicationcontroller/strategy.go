// Package replicationcontroller describes the kind ReplicationController of core/v1, which ReplicaSets have replaced
// and old manifests still have.
package replicationcontroller

import (
	"context"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.ReplicationController, corev1.ReplicationControllerList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "ReplicationController",
		Plural: "replicationcontrollers", Singular: "replicationcontroller", ShortNames: []string{"rc"},
		Categories: []string{"all"},
	}, resource.Rules[corev1.ReplicationController]{
		Default:  SetDefaults,
		Spec:     func(c *corev1.ReplicationController) any { return &c.Spec },
		Status:   func(c *corev1.ReplicationController) any { return &c.Status },
		Validate: func(_ context.Context, c *corev1.ReplicationController) field.ErrorList { return Validate(c) },
		ValidateStatusUpdate: func(_ context.Context, c, _ *corev1.ReplicationController) field.ErrorList {
			return ValidateStatus(&c.Status, field.NewPath("status"))
		},
		WarningsOnCreate: func(_ context.Context, c *corev1.ReplicationController) []string {
			return append(warnings.OfName(c.Name, "Pod names and hostnames"), warningsOf(c)...)
		},
		WarningsOnUpdate: func(_ context.Context, c, old *corev1.ReplicationController) []string {
			if c.Generation == old.Generation {
				return nil
			}
			return warningsOf(c)
		},
		// Its pods stay when nothing else is said: so it was in the first version of the API.
		OrphanDependents: true,
		Fields: func(c *corev1.ReplicationController) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(c.Status.Replicas))}
		},
		FieldLabels: []string{"status.replicas"},
		Table:       printer,
	})
}

func warningsOf(c *corev1.ReplicationController) []string {
	if c.Spec.Template == nil {
		return nil
	}
	return warnings.OfTemplate(c.Spec.Template, field.NewPath("spec", "template"))
}

// SetDefaults fills in what a controller leaves out: without a selector it selects by the labels of its template.
func SetDefaults(c *corev1.ReplicationController) {
	if c.Spec.Replicas == nil {
		c.Spec.Replicas = ptr.To[int32](1)
	}
	if c.Spec.Template == nil {
		return
	}
	defaults.SetTemplate(c.Spec.Template)
	if all := c.Spec.Template.Labels; all != nil {
		if len(c.Spec.Selector) == 0 {
			c.Spec.Selector = maps.Clone(all)
		}
		if len(c.Labels) == 0 {
			c.Labels = maps.Clone(all)
		}
	}
}

var printer = table.Of(func(c *corev1.ReplicationController, now time.Time) []any {
	var names, images string
	if c.Spec.Template != nil {
		names, images = podspec.Summary(c.Spec.Template.Spec.Containers)
	}
	return []any{
		c.Name, int64(ptr.Deref(c.Spec.Replicas, 0)), int64(c.Status.Replicas), int64(c.Status.ReadyReplicas),
		table.Since(c.CreationTimestamp, now), names, images, labels.FormatLabels(c.Spec.Selector),
	}
},
	table.Name,
	table.Column{Name: "Desired", Type: "integer", Description: "Pods that there should be."},
	table.Column{Name: "Current", Type: "integer", Description: "Pods that there are."},
	table.Column{Name: "Ready", Type: "integer", Description: "Pods that are ready."},
	table.Age,
	table.Column{Name: "Containers", Wide: true, Description: "Names of the containers in the template."},
	table.Column{Name: "Images", Wide: true, Description: "Images of the containers in the template."},
	table.Column{Name: "Selector", Wide: true, Description: "Selector of the pods that belong to the controller."},
)
