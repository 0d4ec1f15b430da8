package cri

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Containers use no swap where the kernel lets it be limited, whether their memory is limited or not.
func TestContainersUseNoSwap(t *testing.T) {
	mount := t.TempDir()
	r := New(Config{Cgroups: testCgroups(t, mount), MemoryCapacity: 1 << 30})
	pod := testPod()
	dir := filepath.Join(mount, r.PodCgroup(pod))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	swap := func() (string, bool) {
		text, ok := r.resources(pod, &pod.Spec.Containers[0]).Unified["memory.swap.max"]
		return text, ok
	}
	file := func(path string) {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file(filepath.Join(dir, "memory.swap.max"))
	if text, ok := swap(); ok {
		t.Errorf("with version 1: %q", text)
	}
	file(filepath.Join(mount, "cgroup.controllers"))
	if text, _ := swap(); text != "0" {
		t.Errorf("swap is limited to %q", text)
	}
	// The limit makes the pod a guaranteed one, in another place.
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "free"})
	dir = filepath.Join(mount, r.PodCgroup(pod))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file(filepath.Join(dir, "memory.swap.max"))
	if got := r.resources(pod, &pod.Spec.Containers[0]).Unified; got["memory.swap.max"] != "0" || got["memory.oom.group"] != "1" {
		t.Errorf("with a limit of memory: %v", got)
	}
	if err := os.Remove(filepath.Join(dir, "memory.swap.max")); err != nil {
		t.Fatal(err)
	}
	if text, ok := swap(); ok {
		t.Errorf("where the kernel does not count it: %q", text)
	}
}
