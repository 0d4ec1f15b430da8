package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/podadmission"
)

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// resized changes the CPU and memory of a pod that runs: up and down, without a restart and with one, and to what cannot be.
func (s stories) resized(t *testing.T) {
	pod := boxPod("resized", "sleep")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts("100m", "20Mi"), Limits: amounts("200m", "40Mi")}
	s.create(pod)
	first := s.await(t, pod.UID, "to be ready", isReady).Status.ContainerStatuses[0]
	resize := func(limits corev1.ResourceList, policy ...corev1.ContainerResizePolicy) {
		s.update(pod.UID, func(p *corev1.Pod) {
			p.Generation++
			p.Spec.Containers[0].Resources.Limits, p.Spec.Containers[0].ResizePolicy = limits, policy
		})
	}
	has := func(want string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			c := p.Status.ContainerStatuses[0]
			memory := c.Resources.Limits[corev1.ResourceMemory]
			return c.State.Running != nil && memory.String() == want && condition(p, corev1.PodResizeInProgress) == nil
		}
	}
	resize(amounts("400m", "80Mi"))
	now := s.await(t, pod.UID, "to have more", has("80Mi")).Status.ContainerStatuses[0]
	if now.ContainerID != first.ContainerID {
		t.Errorf("the container was restarted: %s, and before %s", now.ContainerID, first.ContainerID)
	}
	s.wantLimits(t, pod, now.ContainerID, "40000", "83886080")
	resize(amounts("150m", "30Mi"))
	now = s.await(t, pod.UID, "to have less", has("30Mi")).Status.ContainerStatuses[0]
	s.wantLimits(t, pod, now.ContainerID, "15000", "31457280")

	resize(amounts("150m", "64Ki"))
	stuck := s.await(t, pod.UID, "to say that its memory is in use", func(p *corev1.Pod) bool {
		c := condition(p, corev1.PodResizeInProgress)
		return c != nil && c.Reason == corev1.PodReasonError
	})
	if c := condition(stuck, corev1.PodResizeInProgress); !strings.Contains(c.Message, "below current usage") {
		t.Errorf("the condition says %q", c.Message)
	}
	if c := stuck.Status.ContainerStatuses[0]; c.Resources.Limits.Memory().String() != "30Mi" {
		t.Errorf("the container has %s, want what it had", c.Resources.Limits.Memory())
	}

	resize(amounts("150m", "50Mi"), corev1.ContainerResizePolicy{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer})
	now = s.await(t, pod.UID, "to have been restarted with more", has("50Mi")).Status.ContainerStatuses[0]
	if now.RestartCount != 1 {
		t.Errorf("restarts: %d, want one", now.RestartCount)
	}
	s.wantLimits(t, pod, now.ContainerID, "15000", "52428800")
	s.awaitEvent(t, "resized: Normal Killing spec.containers{main} Container main resize requires restart")
	s.end(t, pod, 5)
}

// grows gives more to a pod whose container is yet to be made: the pod as a whole was made with room for less.
func (s stories) grows(t *testing.T) {
	pod := boxPod("grows", "sleep")
	c := &pod.Spec.Containers[0]
	c.Image, c.ImagePullPolicy = "everynode.test/later:1", corev1.PullNever
	c.Resources = corev1.ResourceRequirements{Requests: amounts("100m", "20Mi"), Limits: amounts("200m", "40Mi")}
	s.create(pod)
	s.await(t, pod.UID, "to wait for its image", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "ErrImageNeverPull"
	})
	s.update(pod.UID, func(p *corev1.Pod) {
		p.Generation++
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Resources.Limits = boxImage, amounts("400m", "80Mi")
	})
	now := s.await(t, pod.UID, "to be ready", isReady).Status.ContainerStatuses[0]
	s.wantLimits(t, pod, now.ContainerID, "40000", "83886080")
	s.end(t, pod, 5)
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			return c
		}
	}
	return nil
}

// wantLimits looks at the cgroups of the pod and of its container.
func (s stories) wantLimits(t *testing.T, pod *corev1.Pod, id, quota, memory string) {
	t.Helper()
	dir := s.cgroupRoot + "/kubepods/burstable/pod" + string(pod.UID)
	_, id, _ = strings.Cut(id, "://")
	for _, dir := range []string{dir, filepath.Join(dir, id)} {
		want := map[string]string{"/sys/fs/cgroup/cpu" + dir + "/cpu.cfs_quota_us": quota, "/sys/fs/cgroup/memory" + dir + "/memory.limit_in_bytes": memory}
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
			want = map[string]string{"/sys/fs/cgroup" + dir + "/cpu.max": quota + " 100000", "/sys/fs/cgroup" + dir + "/memory.max": memory}
		}
		for path, text := range want {
			if got, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(got)) != text {
				t.Errorf("%s has %q (%v), want %q", path, got, err, text)
			}
		}
	}
}

// A pod that waits for room has what it had, also for the sums of others, and after a restart of the agent; it gets more once another goes.
func TestResizeWaitsForRoom(t *testing.T) {
	small, big := boxPod("small"), boxPod("big")
	small.Spec.Containers[0].Resources.Requests, big.Spec.Containers[0].Resources.Requests = amounts("1", "1Mi"), amounts("2", "1Mi")
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("3500m", "1Gi")}}
	p := newPods(t.Context(), parts{clock: clock.RealClock{}, node: func() *corev1.Node { return node },
		devices: devices.New(devices.Config{Dir: t.TempDir(), Clock: clock.RealClock{}}), claims: noClaims{}})
	for _, pod := range []*corev1.Pod{small, big} {
		if _, why := p.admit(pod); why != nil {
			t.Fatal(why)
		}
	}
	asked := small.DeepCopy()
	asked.Spec.Containers[0].Resources.Requests = amounts("2", "1Mi")
	got, why := p.resize(asked)
	if cpu := got.Spec.Containers[0].Resources.Requests.Cpu(); why.Reason != corev1.PodReasonDeferred || cpu.String() != "1" {
		t.Fatalf("it has %s and %+v, want 1 and Deferred", cpu, why)
	}
	third := boxPod("third")
	third.Spec.Containers[0].Resources.Requests = amounts("500m", "1Mi")
	if _, why := p.admit(third); why != nil {
		t.Errorf("what is not given is held against another pod: %+v", why)
	}
	reported := asked.DeepCopy()
	reported.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", AllocatedResources: amounts("1", "1Mi"),
		Resources: &corev1.ResourceRequirements{Requests: amounts("1", "1Mi")}}}
	if cpu := podadmission.AsReported(reported).Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "1" {
		t.Errorf("after a restart of the agent it has %s, want 1", cpu)
	}
	w := newWorker(p, small.UID)
	p.workers[small.UID] = w
	p.release(big.UID)
	if !w.freed {
		t.Error("nobody told the pod that another one went")
	}
	if got, why := p.resize(asked); why.Reason != "" || got.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
		t.Errorf("with room it has %+v and %+v", got.Spec.Containers[0].Resources, why)
	}
}
