// Package node describes the kind Node of core/v1.
package node

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Definition returns the kind. A node keeps the status it is created with,
// because agents register nodes that already know what they have.
func Definition() resource.Definition {
	return resource.Of[corev1.Node, corev1.NodeList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "Node",
		Plural: "nodes", Singular: "node", ShortNames: []string{"no"}, ClusterScoped: true,
	}, resource.Rules[corev1.Node]{
		Default:        SetDefaults,
		StatusOnCreate: true,
		Status:         func(n *corev1.Node) any { return &n.Status },
		Validate:       func(_ context.Context, n *corev1.Node) field.ErrorList { return Validate(n) },
		ValidateUpdate: func(_ context.Context, n, old *corev1.Node) field.ErrorList { return ValidateUpdate(n, old) },
		PrepareStatusForUpdate: func(_ context.Context, n, old *corev1.Node) {
			prepareReport(n, old)
		},
		ValidateStatusUpdate: func(_ context.Context, n, old *corev1.Node) field.ErrorList { return ValidateUpdate(n, old) },
		WarningsOnCreate:     func(_ context.Context, n *corev1.Node) []string { return warnings(n) },
		WarningsOnUpdate:     func(_ context.Context, n, _ *corev1.Node) []string { return warnings(n) },
		Fields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		},
		FieldLabels: []string{"spec.unschedulable"},
		Table:       printer,
	})
}

// prepareReport keeps the spec as it was, but for the taint by which admission closes a node whose machine has started
// again: nobody is to see the new report without it.
func prepareReport(n, old *corev1.Node) {
	gate := nodestartup.TaintOf(n.Spec.Taints)
	n.Spec = old.Spec
	if gate != nil && nodestartup.Restarted(old, n) {
		n.Spec.Taints = nodestartup.With(old.Spec.Taints, gate)
	}
}

// SetDefaults fills in what a node leaves out: all that it has can be given to
// pods, and the first of its pod address ranges is also in the older field.
func SetDefaults(n *corev1.Node) {
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	defaults.RoundResources(n.Status.Capacity)
	defaults.RoundResources(n.Status.Allocatable)
	spec := &n.Spec
	switch {
	case spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR):
		spec.PodCIDRs = []string{spec.PodCIDR}
	case spec.PodCIDR == "" && len(spec.PodCIDRs) > 0:
		spec.PodCIDR = spec.PodCIDRs[0]
	}
}
