package fit

import (
	"fmt"

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
			Rule: Room, Text: TextTooManyPods, About: string(corev1.ResourcePods), Wanted: 1,
			Free: int64(node.AllowedPods - len(node.Pods)),
		})
	}
	request := &q.pod.Requests
	if request.IsZero() {
		return reasons
	}
	for _, lack := range request.Shortages(node.Allocatable, node.Requested) {
		reasons = append(reasons, Reason{
			Rule: Room, Text: "Insufficient " + string(lack.Resource), About: string(lack.Resource),
			Wanted: lack.Wanted, Free: lack.Allocatable - lack.Requested, Hopeless: lack.Wanted > lack.Allocatable,
		})
	}
	return reasons
}
