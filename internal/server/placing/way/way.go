// Package way decides whether a daemon's pod can be created with its node, or must be bound after it was created.
package way

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/fit/nodeaffinity"
)

// Reason is why a pod is created without its node and bound afterwards; "" is none.
type Reason string

// The reasons that the pod or the cluster give, in the order in which they are looked at. Those of the scheduler come
// beside them.
const (
	// OtherScheduler: the pod asks for another scheduler than ours.
	OtherScheduler Reason = "other-scheduler"
	// Gates: somebody holds the pod up until scheduling gates are taken away.
	Gates Reason = "scheduling-gates"
	// Devices: devices are to be allocated and written into claims.
	Devices Reason = "resource-claims"
	// FreeChoice: the pod does not name one node, because admission made it another one.
	FreeChoice Reason = "not-for-one-node"
	// Watched: a webhook or a policy wants to hear of bindings, and would look for the pod.
	Watched Reason = "bindings-watched"
)

// Of is why the pod, as it would be stored, is not to be created with its node. scheduler is the name of the one in
// this process, and watched says that admission which somebody configured is about bindings.
func Of(p *corev1.Pod, scheduler string, watched bool) Reason {
	names, named := nodeaffinity.Names(&p.Spec)
	switch {
	case p.Spec.SchedulerName != scheduler:
		return OtherScheduler
	case len(p.Spec.SchedulingGates) > 0:
		return Gates
	case len(p.Spec.ResourceClaims) > 0:
		return Devices
	case !named || len(names) != 1:
		return FreeChoice
	case watched:
		return Watched
	}
	return ""
}
