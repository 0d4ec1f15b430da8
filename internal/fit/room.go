package fit

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// What a node is reported with that takes no further pod, or whose port is taken. One that lacks a resource is reported
// with "Insufficient" and the resource's name.
const (
	TextTooManyPods = "Too many pods"
	TextPorts       = "node(s) didn't have free ports for the requested pod ports"
)

// checkPorts: two pods cannot take the same port of a node.
func checkPorts(q *Question, node *trialNode) []Reason {
	for _, port := range q.pod.HostPorts {
		if node.Ports.Conflicts(port) {
			return fails(HostPortsFree, TextPorts, fmt.Sprintf("%d/%s", port.Port, port.Protocol), false)
		}
	}
	return nil
}

// checkRoom: a node must have room for what the pod requests. All resources that lack are reported, not only the first.
func checkRoom(q *Question, node *trialNode) []Reason {
	var reasons []Reason
	if len(node.Pods)+1 > node.AllowedPods {
		reasons = append(reasons, Reason{
			Rule: Room, Text: TextTooManyPods, About: string(corev1.ResourcePods), Wanted: 1, Free: int64(node.AllowedPods - len(node.Pods)),
		})
	}
	request := &q.pod.Requests
	if request.IsZero() {
		return reasons
	}
	need := func(name corev1.ResourceName, wanted, allocatable, requested int64) {
		if wanted > 0 && wanted > allocatable-requested {
			reasons = append(reasons, Reason{
				Rule: Room, Text: "Insufficient " + string(name), About: string(name),
				Wanted: wanted, Free: allocatable - requested, Hopeless: wanted > allocatable,
			})
		}
	}
	need(corev1.ResourceCPU, request.MilliCPU, node.Allocatable.MilliCPU, node.Requested.MilliCPU)
	need(corev1.ResourceMemory, request.Memory, node.Allocatable.Memory, node.Requested.Memory)
	need(corev1.ResourceEphemeralStorage, request.EphemeralStorage, node.Allocatable.EphemeralStorage, node.Requested.EphemeralStorage)
	if len(request.Scalar) > 0 {
		for _, name := range slices.Sorted(maps.Keys(request.Scalar)) {
			need(name, request.Scalar[name], node.Allocatable.Scalar[name], node.Requested.Scalar[name])
		}
	}
	return reasons
}
