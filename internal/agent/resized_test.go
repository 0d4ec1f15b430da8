package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory)}
}

// resized changes the CPU and memory of a pod that runs: up and down, without a restart and with one, and to what
// cannot be.
func (s stories) resized(t *testing.T) {
	pod := podstest.Pod("resized", "sleep")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts("100m", "20Mi"),
		Limits: amounts("200m", "40Mi")}
	s.Create(pod)
	first := s.Await(t, pod.UID, "to be ready", podstest.IsReady).Status.ContainerStatuses[0]
	resize := func(limits corev1.ResourceList, policy ...corev1.ContainerResizePolicy) {
		s.Update(pod.UID, func(p *corev1.Pod) {
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
	now := s.Await(t, pod.UID, "to have more", has("80Mi")).Status.ContainerStatuses[0]
	if now.ContainerID != first.ContainerID {
		t.Errorf("the container was restarted: %s, and before %s", now.ContainerID, first.ContainerID)
	}
	s.wantLimits(t, pod, now.ContainerID, "40000", "83886080")
	resize(amounts("150m", "30Mi"))
	now = s.Await(t, pod.UID, "to have less", has("30Mi")).Status.ContainerStatuses[0]
	s.wantLimits(t, pod, now.ContainerID, "15000", "31457280")

	resize(amounts("150m", "64Ki"))
	stuck := s.Await(t, pod.UID, "to say that its memory is in use", func(p *corev1.Pod) bool {
		c := condition(p, corev1.PodResizeInProgress)
		return c != nil && c.Reason == corev1.PodReasonError
	})
	if c := condition(stuck, corev1.PodResizeInProgress); !strings.Contains(c.Message, "below current usage") {
		t.Errorf("the condition says %q", c.Message)
	}
	if c := stuck.Status.ContainerStatuses[0]; c.Resources.Limits.Memory().String() != "30Mi" {
		t.Errorf("the container has %s, want what it had", c.Resources.Limits.Memory())
	}

	resize(amounts("150m", "50Mi"), corev1.ContainerResizePolicy{ResourceName: corev1.ResourceMemory,
		RestartPolicy: corev1.RestartContainer})
	now = s.Await(t, pod.UID, "to have been restarted with more", has("50Mi")).Status.ContainerStatuses[0]
	if now.RestartCount != 1 {
		t.Errorf("restarts: %d, want one", now.RestartCount)
	}
	s.wantLimits(t, pod, now.ContainerID, "15000", "52428800")
	s.AwaitEvent(t, "resized: Normal Killing spec.containers{main} Container main resize requires restart")
	s.end(t, pod, 5)
}

// grows gives more to a pod whose container is yet to be made: the pod as a whole was made with room for less.
func (s stories) grows(t *testing.T) {
	pod := podstest.Pod("grows", "sleep")
	c := &pod.Spec.Containers[0]
	c.Image, c.ImagePullPolicy = "everynode.test/later:1", corev1.PullNever
	c.Resources = corev1.ResourceRequirements{Requests: amounts("100m", "20Mi"), Limits: amounts("200m", "40Mi")}
	s.Create(pod)
	s.Await(t, pod.UID, "to wait for its image", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "ErrImageNeverPull"
	})
	s.Update(pod.UID, func(p *corev1.Pod) {
		p.Generation++
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Resources.Limits = podstest.BoxImage, amounts("400m", "80Mi")
	})
	now := s.Await(t, pod.UID, "to be ready", podstest.IsReady).Status.ContainerStatuses[0]
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
		want := map[string]string{"/sys/fs/cgroup/cpu" + dir + "/cpu.cfs_quota_us": quota,
			"/sys/fs/cgroup/memory" + dir + "/memory.limit_in_bytes": memory}
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
			want = map[string]string{"/sys/fs/cgroup" + dir + "/cpu.max": quota + " 100000",
				"/sys/fs/cgroup" + dir + "/memory.max": memory}
		}
		for path, text := range want {
			if got, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(got)) != text {
				t.Errorf("%s has %q (%v), want %q", path, got, err, text)
			}
		}
	}
}
