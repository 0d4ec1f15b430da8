package cri

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestPageSize(t *testing.T) {
	for bytes, want := range map[int64]string{64 << 10: "64KB", 2 << 20: "2MB", 32 << 20: "32MB", 1 << 30: "1GB", 16 << 30: "16GB"} {
		if got := pageSize(bytes); got != want {
			t.Errorf("%d bytes are %s, want %s", bytes, got, want)
		}
	}
}

// A pod gets the huge pages that it asks for, and none of another size, in both versions of cgroups; so does each container.
func TestHugePages(t *testing.T) {
	pages := corev1.ResourceList{"hugepages-2Mi": resource.MustParse("6Mi"), corev1.ResourceMemory: resource.MustParse("10Mi")}
	for version, c := range map[string]struct {
		prepare func(t *testing.T, mount string)
		folder  string
		suffix  string
	}{
		"1": {func(t *testing.T, mount string) { mkdir(t, mount+"/hugetlb") }, "hugetlb/", ".limit_in_bytes"},
		"2": {func(t *testing.T, mount string) {
			write(t, mount+"/cgroup.controllers", "cpu memory pids hugetlb")
			for _, dir := range []string{"", "/everynode", "/everynode/n1", "/everynode/n1/kubepods", "/everynode/n1/kubepods/burstable"} {
				write(t, mount+dir+"/cgroup.subtree_control", "cpu memory pids hugetlb")
			}
		}, "", ".max"},
	} {
		t.Run("version "+version, func(t *testing.T) {
			r, pod := testRuntime(t), testPod()
			c.prepare(t, r.cfg.CgroupMount)
			if !r.cgroups.limitsPages() {
				t.Fatal("the machine's controller is not seen")
			}
			r.cgroups.sizes = []string{"2MB", "1GB"}
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: pages, Limits: pages}
			if err := r.cgroups.ensurePod(pod); err != nil {
				t.Fatal(err)
			}
			for size, want := range map[string]string{"2MB": "6291456", "1GB": "0"} {
				path := filepath.Join(r.cfg.CgroupMount, c.folder, r.cgroups.podPath(pod), "hugetlb."+size+c.suffix)
				if got, err := os.ReadFile(path); err != nil || string(got) != want {
					t.Errorf("%s is %s (%v), want %s", path, got, err, want)
				}
			}
			got := map[string]uint64{}
			for _, l := range r.resources(pod, &pod.Spec.Containers[0]).HugepageLimits {
				got[l.PageSize] = l.Limit
			}
			if want := map[string]uint64{"2MB": 6 << 20, "1GB": 0}; !maps.Equal(got, want) {
				t.Errorf("the container's limits are %v, want %v", got, want)
			}
		})
	}
	if r := testRuntime(t); len(r.resources(testPod(), &testPod().Spec.Containers[0]).HugepageLimits) != 0 {
		t.Error("limits are sent where the machine cannot keep them")
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(fmt.Errorf("write %s: %w", path, err))
	}
}
