package eviction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reason is the reason of an evicted pod's status, and of the event about it.
const Reason = "Evicted"

// Message says to the user why the pod was ended for the crossing.
func Message(c Crossing, u *Usage) string {
	what := c.Threshold.Signal.Resource()
	text := fmt.Sprintf(
		"The node was low on resource: %s. Threshold quantity: %s, available: %s. ",
		what, c.Threshold.text(),
		bytes(c.Observation.Available),
	)
	for i := range u.Pod.Spec.Containers {
		spec := &u.Pod.Spec.Containers[i]
		used, requested := containerShare(c.Threshold.Signal, u, spec)
		if used > requested {
			text += fmt.Sprintf(
				"Container %s was using %s, request is %s, has larger consumption of %s. ",
				spec.Name, bytes(used), bytes(requested), what,
			)
		}
	}
	return text
}

func containerShare(s Signal, u *Usage, spec *corev1.Container) (used, requested int64) {
	switch s.Resource() {
	case "memory":
		return u.Containers[spec.Name].Memory, quantity(spec.Resources.Requests, corev1.ResourceMemory)
	case "ephemeral-storage":
		return u.Containers[spec.Name].Disk, quantity(spec.Resources.Requests, corev1.ResourceEphemeralStorage)
	default:
		return 0, 0
	}
}
