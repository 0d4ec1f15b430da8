// Package pod describes the kind Pod of core/v1, and serves what can be done
// with a pod besides storing it: binding, eviction, logs and connections.
package pod

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.Pod, corev1.PodList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "Pod",
		Plural: "pods", Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"},
	}, resource.Rules[corev1.Pod]{
		Default:                SetDefaults,
		Spec:                   func(p *corev1.Pod) any { return &p.Spec },
		Status:                 func(p *corev1.Pod) any { return &p.Status },
		PrepareForCreate:       func(_ context.Context, p *corev1.Pod) { prepareForCreate(p) },
		PrepareForUpdate:       func(_ context.Context, p, _ *corev1.Pod) { noNegativeGrace(p) },
		Validate:               func(_ context.Context, p *corev1.Pod) field.ErrorList { return Validate(p) },
		ValidateUpdate:         func(_ context.Context, p, old *corev1.Pod) field.ErrorList { return ValidateUpdate(p, old) },
		PrepareStatusForUpdate: func(_ context.Context, p, old *corev1.Pod) { prepareStatusForUpdate(p, old) },
		ValidateStatusUpdate: func(_ context.Context, p, old *corev1.Pod) field.ErrorList {
			return ValidateStatusUpdate(p, old)
		},
		WarningsOnCreate: func(_ context.Context, p *corev1.Pod) []string {
			return append(warnings.OfName(p.Name, "the Pod's hostname"), warnings.OfPod(p)...)
		},
		GracefulDelete: func(_ context.Context, p *corev1.Pod, options *metav1.DeleteOptions) bool {
			return setGracePeriod(p, options)
		},
		ReturnDeletedObject: true,
		Fields:              selectable,
		FieldLabels: []string{"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
			"spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName", "spec.host"},
		FieldAlias:    map[string]string{"spec.host": "spec.nodeName"},
		IndexedFields: []string{"spec.nodeName"},
		Table:         printer,
	})
}

func selectable(p *corev1.Pod) fields.Set {
	ip := p.Status.PodIP
	if ip == "" && len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(p.Spec.HostNetwork),
		"status.phase":             string(p.Status.Phase),
		"status.podIP":             ip,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

// SetDefaults fills in what a pod leaves out.
func SetDefaults(p *corev1.Pod) {
	defaults.SetPod(&p.Spec)
	defaults.Set(&p.Spec)
}

// prepareForCreate gives a new pod its first status.
func prepareForCreate(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podfacts.QOS(p)}
	noNegativeGrace(p)
	matchLabelKeys(p)
	gate(p)
}

// noNegativeGrace makes the shortest time of one that is none.
func noNegativeGrace(p *corev1.Pod) {
	if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	}
}

// gate marks a new pod that must not be scheduled yet.
func gate(p *corev1.Pod) {
	if len(p.Spec.SchedulingGates) == 0 {
		return
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
		Message: "Scheduling is blocked due to non-empty scheduling gates",
	})
}

// prepareStatusForUpdate keeps what only the API server decides.
func prepareStatusForUpdate(p, old *corev1.Pod) {
	p.Spec = old.Spec
	p.DeletionTimestamp = old.DeletionTimestamp
	p.OwnerReferences = old.OwnerReferences
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	boundGiven(p, old)
}

// setGracePeriod settles how long a pod may take to end. One that runs nowhere
// ends at once. The answer is always true: a period of zero deletes directly.
func setGracePeriod(p *corev1.Pod, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	var seconds int64
	switch {
	case p.Spec.NodeName == "", p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
	case options.GracePeriodSeconds != nil:
		seconds = *options.GracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *p.Spec.TerminationGracePeriodSeconds
	}
	if seconds < 0 {
		seconds = 1
	}
	options.GracePeriodSeconds = &seconds
	return true
}
