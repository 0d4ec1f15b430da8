package pods_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/hollow"
	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory)}
}

// resized changes the CPU and memory of a pod that runs: up and down, without a restart and with one, and to what
// cannot be. A pod that waits for room has what it had, also for the sums of others, and after a restart of the agent;
// it gets more once another goes.
func TestResizeWaitsForRoom(t *testing.T) {
	small, big := podstest.Pod("small"), podstest.Pod("big")
	small.Spec.Containers[0].Resources.Requests, big.Spec.Containers[0].Resources.Requests = amounts("1",
		"1Mi"), amounts("2", "1Mi")
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("3500m", "1Gi")}}
	p := pods.New(t.Context(), pods.Config{Clock: clock.RealClock{}, Node: func() *corev1.Node { return node },
		Devices: devices.New(devices.Config{Dir: t.TempDir(), Clock: clock.RealClock{}}), Claims: hollow.NoClaims{}})
	for _, pod := range []*corev1.Pod{small, big} {
		p.AddIdle(pod.UID)
		if _, why := p.Admit(pod); why != nil {
			t.Fatal(why)
		}
	}
	asked := small.DeepCopy()
	asked.Spec.Containers[0].Resources.Requests = amounts("2", "1Mi")
	got, why := p.Resize(asked)
	if cpu := got.Spec.Containers[0].Resources.Requests.Cpu(); why.Reason != corev1.PodReasonDeferred ||
		cpu.String() != "1" {
		t.Fatalf("it has %s and %+v, want 1 and Deferred", cpu, why)
	}
	third := podstest.Pod("third")
	third.Spec.Containers[0].Resources.Requests = amounts("500m", "1Mi")
	if _, why := p.Admit(third); why != nil {
		t.Errorf("what is not given is held against another pod: %+v", why)
	}
	reported := asked.DeepCopy()
	reported.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: amounts("1", "1Mi"),
		Resources: &corev1.ResourceRequirements{Requests: amounts("1", "1Mi")}}}
	if cpu := podadmission.AsReported(reported).Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "1" {
		t.Errorf("after a restart of the agent it has %s, want 1", cpu)
	}
	freed := p.AddIdle(small.UID)
	p.Release(big.UID)
	if !freed() {
		t.Error("nobody told the pod that another one went")
	}
	if got, why := p.Resize(asked); why.Reason != "" || got.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
		t.Errorf("with room it has %+v and %+v", got.Spec.Containers[0].Resources, why)
	}
}

// What a pod gives back it has until its containers have less: no other pod is given it before.
func TestRoomOfAPodThatShrinks(t *testing.T) {
	sized := func(name, cpu, has string) *corev1.Pod {
		pod := podstest.Pod(name)
		pod.Spec.Containers[0].Resources.Requests = amounts(cpu, "1Mi")
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://a",
			AllocatedResources: amounts(has, "1Mi"), Resources: &corev1.ResourceRequirements{Requests: amounts(has, "1Mi")}}}
		return pod
	}
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("4", "1Gi")}}
	p := pods.New(t.Context(), pods.Config{Clock: clock.RealClock{}, Node: func() *corev1.Node { return node },
		Devices: devices.New(devices.Config{Dir: t.TempDir(), Clock: clock.RealClock{}}), Claims: hollow.NoClaims{}})
	for _, pod := range []*corev1.Pod{sized("shrinks", "2", "2"), sized("grows", "1", "1")} {
		p.AddIdle(pod.UID)
		if _, why := p.Admit(pod); why != nil {
			t.Fatal(why)
		}
	}
	if _, why := p.Resize(sized("shrinks", "1", "2")); why.Reason != "" {
		t.Fatalf("it cannot have less: %+v", why)
	}
	grows := sized("grows", "3", "1")
	if _, why := p.Resize(grows); why.Reason != corev1.PodReasonDeferred {
		t.Errorf("while the other one has its room, a pod may grow: %+v", why)
	}
	if _, why := p.Admit(sized("new", "1500m", "0")); why == nil {
		t.Error("while the other one has its room, another one may come")
	}
	freed := p.AddIdle("uid-grows")
	if _, why := p.Resize(sized("shrinks", "1", "1")); why.Reason != "" || !freed() {
		t.Errorf("once it has less: %+v, and others are told: %t", why, freed())
	}
	if _, why := p.Resize(grows); why.Reason != "" {
		t.Errorf("with room: %+v", why)
	}
}
