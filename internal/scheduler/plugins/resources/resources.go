// Package resources is the rule that a node must have room for what a pod requests, and the preference for the node
// that has most room left.
package resources

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// TooManyPods is what a node that takes no further pod is reported with.
const TooManyPods = "Too many pods"

// Filter is the rule. All resources that lack are reported, not only the first.
var Filter = plugins.Filter{
	Name:     "NodeResourcesFit",
	Prepare:  prepare,
	HelpedBy: cache.NodeAdded | cache.AllocatableChanged | cache.PodRemoved,
}

// Scorer prefers the node of whose CPU and memory the smallest part would be requested.
var Scorer = plugins.Scorer{Name: "NodeResourcesFit", Weight: 1, Prepare: leastAllocated}

func prepare(pod *cache.Pod, _ *cache.Cache) plugins.Check {
	return func(node *cache.Node) plugins.Verdict { return fits(&pod.Requests, node) }
}

func fits(request *cache.Resources, node *cache.Node) plugins.Verdict {
	var verdict plugins.Verdict
	if len(node.Pods)+1 > node.AllowedPods {
		verdict.Reasons = append(verdict.Reasons, TooManyPods)
	}
	if request.IsZero() {
		return verdict
	}
	need := func(name corev1.ResourceName, wanted, allocatable, requested int64) {
		if wanted > 0 && wanted > allocatable-requested {
			verdict.Reasons = append(verdict.Reasons, "Insufficient "+string(name))
			verdict.Hopeless = verdict.Hopeless || wanted > allocatable
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
	return verdict
}

func leastAllocated(pod *cache.Pod, nodes []*cache.Node, _ *cache.Cache) []int64 {
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		cpu := free(node.Allocatable.MilliCPU, node.Comparable.MilliCPU+pod.Comparable.MilliCPU)
		memory := free(node.Allocatable.Memory, node.Comparable.Memory+pod.Comparable.Memory)
		scores[i] = (cpu + memory) / 2
	}
	return scores
}

// free is the part of a resource that would stay free, 0 to MaxScore.
func free(allocatable, requested int64) int64 {
	if allocatable <= 0 || requested >= allocatable {
		return 0
	}
	return (allocatable - requested) * plugins.MaxScore / allocatable
}
