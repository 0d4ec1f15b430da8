package podadmission

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/hostport"
	"github.com/everynode/everynode/internal/fit/resources"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// fits says why the pod cannot run on the node beside others, nil if it can. A node of nil refuses nothing but ports.
func fits(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) *Refusal {
	if portsTaken(pod, others) {
		return &Refusal{"NodePorts", "Pod was rejected: Predicate NodePorts failed: " + fit.TextPorts}
	}
	if node == nil {
		return nil
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil || !match {
		return &Refusal{"NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: " +
			"node(s) didn't match Pod's node affinity/selector"}
	}
	return room(pod, node, others)
}

// portsTaken reports whether one of the others has a port of the node that the pod wants.
func portsTaken(pod *corev1.Pod, others []*corev1.Pod) bool {
	wanted := hostport.Of(&pod.Spec)
	if len(wanted) == 0 {
		return false
	}
	var taken hostport.Held
	for _, other := range others {
		for _, port := range hostport.Of(&other.Spec) {
			taken.Add(port)
		}
	}
	for _, port := range wanted {
		if taken.Conflicts(port) {
			return true
		}
	}
	return false
}

// room says which resource of the node is too small for the pod beside the others.
func room(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) *Refusal {
	allocatable := node.Status.Allocatable
	limit, ok := allocatable[corev1.ResourcePods]
	if ok && int64(len(others))+1 > limit.Value() {
		return outOf(resources.Shortage{
			Resource:    corev1.ResourcePods,
			Wanted:      1,
			Requested:   int64(len(others)),
			Allocatable: limit.Value(),
		})
	}
	for _, lack := range requests(pod).Shortages(resources.FromList(allocatable), reserved(others)) {
		_, known := allocatable[lack.Resource]
		if known || !extended(lack.Resource) { // of a device that it does not know the node has none to run out of
			return outOf(lack)
		}
	}
	return nil
}

// requests is what the pod asks for.
func requests(pod *corev1.Pod) resources.Amounts { return resources.FromList(podfacts.Requests(pod)) }

// reserved is what the pods have together: one that is to have less has what it had until its containers do.
func reserved(pods []*corev1.Pod) (sum resources.Amounts) {
	for _, pod := range pods {
		sum.Add(resources.FromList(podfacts.Reserved(pod)))
	}
	return sum
}

func outOf(lack resources.Shortage) *Refusal {
	return &Refusal{"OutOf" + string(lack.Resource), fmt.Sprintf(
		"Pod was rejected: Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		lack.Resource, lack.Wanted, lack.Requested, lack.Allocatable)}
}

// extended reports whether the resource is one that nodes need not have: it is in a domain, unlike memory.
func extended(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }

// withoutDevices is the node without the resources that are counted device by device.
func withoutDevices(node *corev1.Node, provides func(corev1.ResourceName) bool) *corev1.Node {
	if node == nil {
		return nil
	}
	var rest corev1.ResourceList
	for name := range node.Status.Allocatable {
		if !extended(name) || !provides(name) {
			continue
		}
		if rest == nil {
			shallow := *node
			node, rest = &shallow, node.Status.Allocatable.DeepCopy()
			node.Status.Allocatable = rest
		}
		delete(rest, name)
	}
	return node
}
