package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// asking is a pod that asks for that much of the processor, and may have twice as much.
func asking(uid, cpu string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	return p
}

// The classes weigh what their pods asked for, as pods come and go; on real cgroups where there are any.
func TestClassesWeighWhatTheirPodsAskFor(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		mount := t.TempDir()
		for _, controller := range []string{"cpu", "memory", "pids"} {
			if err := os.Mkdir(filepath.Join(mount, controller), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		// The kernel gives every new cgroup its files.
		classes := func(root string) {
			for _, class := range []string{"burstable", "besteffort"} {
				dir := filepath.Join(mount, "cpu", root, "kubepods", class)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "cpu.shares"), []byte("1024"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		classes("files")
		checkWeights(t, cgroups{mount: mount, root: "files", weighing: &sync.Mutex{}}, func(c cgroups, uid string) error {
			return os.RemoveAll(filepath.Join(mount, "cpu", c.qosPath(corev1.PodQOSBurstable), "pod"+uid))
		})
	})
	t.Run("kernel", func(t *testing.T) {
		c := cgroups{mount: "/sys/fs/cgroup", root: fmt.Sprintf("everynode-test-%d", os.Getpid()), weighing: &sync.Mutex{}}
		if os.Geteuid() != 0 || c.unified() {
			t.Skip("needs root and cgroups of version 1")
		}
		t.Cleanup(func() {
			hierarchies, err := c.hierarchies()
			if err != nil {
				t.Error(err)
			}
			for _, h := range hierarchies {
				if err := removeTree(filepath.Join(h, c.root)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			}
		})
		checkWeights(t, c, func(c cgroups, uid string) error { return c.removePod(types.UID(uid)) })
	})
}

func checkWeights(t *testing.T, c cgroups, remove func(c cgroups, uid string) error) {
	t.Helper()
	weighs := func(when, burstable, besteffort string) {
		t.Helper()
		for class, want := range map[corev1.PodQOSClass]string{corev1.PodQOSBurstable: burstable, corev1.PodQOSBestEffort: besteffort} {
			text, err := os.ReadFile(filepath.Join(c.mount, "cpu", c.qosPath(class), "cpu.shares"))
			if err != nil && want != "" || strings.TrimSpace(string(text)) != want {
				t.Errorf("%s: %s weighs %q, want %q (%v)", when, class, text, want, err)
			}
		}
	}
	ensure := func(pod *corev1.Pod) {
		t.Helper()
		if err := c.ensurePod(pod); err != nil {
			t.Fatal(err)
		}
	}
	ensure(asking("nothing", ""))
	ensure(asking("half", "500m"))
	weighs("after a half", "512", "2")
	ensure(asking("two", "2"))
	ensure(asking("nothing-more", ""))
	weighs("after two more", "2560", "2")
	ensure(asking("two", "2"))
	weighs("after the same again", "2560", "2")
	if err := remove(c, "two"); err != nil {
		t.Fatal(err)
	}
	if err := c.weigh(); err != nil {
		t.Fatal(err)
	}
	weighs("after it has gone", "512", "2")
}

// Containers use no swap where the kernel lets it be limited, whether their memory is limited or not.
func TestContainersUseNoSwap(t *testing.T) {
	mount := t.TempDir()
	r := New(Config{CgroupMount: mount, CgroupRoot: "/everynode/n", MemoryCapacity: 1 << 30})
	pod := asking("a", "1")
	dir := filepath.Join(mount, r.cgroups.podPath(pod))
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
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
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
