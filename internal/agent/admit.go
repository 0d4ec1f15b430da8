package agent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	podfacts "github.com/everynode/everynode/internal/pod"
)

// refusal is why a node does not take a pod.
type refusal struct{ reason, message string }

// fits says why the pod cannot run on the node beside others, nil if it can. The scheduler made sure that it can, but not
// for pods that name their node themselves, nor against what it did not know yet. A node of nil refuses nothing but ports.
func fits(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) *refusal {
	if conflict(pod, others) {
		return &refusal{"NodePorts", "Pod was rejected: Predicate NodePorts failed: " +
			"node(s) didn't have free ports for the requested pod ports"}
	}
	if node == nil {
		return nil
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil || !match {
		return &refusal{"NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: " +
			"node(s) didn't match Pod's node affinity/selector"}
	}
	return room(pod, node, others)
}

type hostPort struct {
	ip       string
	protocol corev1.Protocol
	port     int32
}

const anyAddress = "0.0.0.0"

func (a hostPort) clashes(b hostPort) bool {
	sameIP := a.ip == b.ip || a.ip == anyAddress || b.ip == anyAddress
	return sameIP && a.port == b.port && a.protocol == b.protocol
}

func hostPorts(pod *corev1.Pod) []hostPort {
	var out []hostPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			hp := hostPort{p.HostIP, p.Protocol, p.HostPort}
			if hp.ip == "" {
				hp.ip = anyAddress
			}
			if hp.protocol == "" {
				hp.protocol = corev1.ProtocolTCP
			}
			out = append(out, hp)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}

func conflict(pod *corev1.Pod, others []*corev1.Pod) bool {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return false
	}
	for _, other := range others {
		for _, taken := range hostPorts(other) {
			for _, w := range wanted {
				if w.clashes(taken) {
					return true
				}
			}
		}
	}
	return false
}

// room says which resource of the node is too small for the pod beside the others.
func room(pod *corev1.Pod, node *corev1.Node, others []*corev1.Pod) *refusal {
	if limit, ok := node.Status.Allocatable[corev1.ResourcePods]; ok && int64(len(others))+1 > limit.Value() {
		return outOf(corev1.ResourcePods, 1, int64(len(others)), limit.Value())
	}
	for name, want := range podfacts.Requests(pod) {
		if want.IsZero() {
			continue
		}
		limit, known := node.Status.Allocatable[name]
		if !known && extended(name) {
			continue // the node has none to run out of
		}
		used := resource.Quantity{}
		for _, other := range others {
			used.Add(podfacts.Requests(other)[name])
		}
		left := limit.DeepCopy()
		left.Sub(used)
		if want.Cmp(left) > 0 {
			return outOf(name, amount(name, want), amount(name, used), amount(name, limit))
		}
	}
	return nil
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func outOf(name corev1.ResourceName, requested, used, capacity int64) *refusal {
	return &refusal{"OutOf" + string(name), fmt.Sprintf(
		"Pod was rejected: Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity)}
}
