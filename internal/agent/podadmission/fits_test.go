package podadmission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFits(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"disk": "ssd"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("3")}}}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := boxPod()
		if change != nil {
			change(p)
		}
		return p
	}
	asks := func(cpu, memory string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		}
	}
	port := func(number int32, protocol corev1.Protocol, ip string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: number, Protocol: protocol, HostIP: ip}}
		}
	}
	tests := []struct {
		name    string
		pod     *corev1.Pod
		others  []*corev1.Pod
		reason  string
		message string
	}{
		{"an empty node", pod(asks("2", "1Gi")), nil, "", ""},
		{"too little cpu", pod(asks("500m", "1Mi")), []*corev1.Pod{pod(asks("1600m", "1Mi"))}, "OutOfcpu",
			"Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: 1600, capacity: 2000"},
		{"too little memory", pod(asks("1m", "1Gi")), []*corev1.Pod{pod(asks("1m", "1Mi"))}, "OutOfmemory",
			"Pod was rejected: Node didn't have enough resource: memory, requested: 1073741824, used: 1048576, capacity: 1073741824"},
		{"too many pods", pod(nil), []*corev1.Pod{pod(nil), pod(nil), pod(nil)}, "OutOfpods",
			"Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"},
		{"an init container that needs more", pod(func(p *corev1.Pod) {
			asks("1m", "1Mi")(p)
			p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}}
		}), nil, "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"},
		{"a resource that the node knows nothing of", pod(func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"example.com/widget": resource.MustParse("3")}}}}
		}), nil, "", ""},
		{"the wrong node", pod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "tape"} }), nil, "NodeAffinity",
			"Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{"a port that is taken", pod(port(80, "", "")), []*corev1.Pod{pod(port(80, corev1.ProtocolTCP, "10.0.0.1"))}, "NodePorts",
			"Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{"the same port of another protocol", pod(port(53, corev1.ProtocolUDP, "")), []*corev1.Pod{pod(port(53, corev1.ProtocolTCP, ""))}, "", ""},
		{"the same port of another address", pod(port(53, "", "10.0.0.2")), []*corev1.Pod{pod(port(53, "", "10.0.0.1"))}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := fits(tt.pod, node, tt.others)
			if got == nil {
				got = &Refusal{}
			}
			if got.Reason != tt.reason || got.Message != tt.message {
				t.Errorf("refused for %q (%s), want %q (%s)", got.Reason, got.Message, tt.reason, tt.message)
			}
		})
	}
}

func TestDevicesAreCountedOneByOne(t *testing.T) {
	one := resource.MustParse("1")
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"memory": one, "example.com/widget": one, "example.com/other": one}}}
	got := withoutDevices(node, func(name corev1.ResourceName) bool { return name == "example.com/widget" })
	if _, ok := got.Status.Allocatable["example.com/widget"]; ok || len(got.Status.Allocatable) != 2 {
		t.Errorf("what is counted otherwise is %v, want all but the device plugin's resource", got.Status.Allocatable)
	}
	if len(node.Status.Allocatable) != 3 {
		t.Error("the node's own object was changed")
	}
	if withoutDevices(node, func(corev1.ResourceName) bool { return false }) != node || withoutDevices(nil, nil) != nil {
		t.Error("a node without devices is copied")
	}
}

// boxPod is a pod with one container.
func boxPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid-p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
}
