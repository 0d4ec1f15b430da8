package cgroups

import (
	"strings"
	"testing"

	"github.com/opencontainers/cgroups/systemd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const podUID types.UID = "07fefad5-64d8-4787-8861-06e17941d8e4"

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		driver     Driver
		root, node string
		class      corev1.PodQOSClass
		path, unit string
	}{
		{Cgroupfs, "", "n-1", corev1.PodQOSGuaranteed, "/everynode/n-1/kubepods/pod" + string(podUID), ""},
		{Cgroupfs, "", "n-1", corev1.PodQOSBurstable, "/everynode/n-1/kubepods/burstable/pod" + string(podUID), ""},
		{Cgroupfs, "/", "n-1", corev1.PodQOSBestEffort, "/kubepods/besteffort/pod" + string(podUID), ""},
		{Cgroupfs, "a//b/", "n-1", corev1.PodQOSBestEffort, "/a/b/kubepods/besteffort/pod" + string(podUID), ""},
		{Systemd, "", "n-1", corev1.PodQOSGuaranteed,
			"/kubepods.slice/kubepods-pod07fefad5_64d8_4787_8861_06e17941d8e4.slice", "kubepods.slice"},
		{Systemd, "/", "n-1", corev1.PodQOSBurstable,
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod07fefad5_64d8_4787_8861_06e17941d8e4.slice", "kubepods-burstable.slice"},
		{Systemd, "/every/n-1.example", "n-1", corev1.PodQOSBestEffort,
			"/every.slice/every-n_1.example.slice/every-n_1.example-kubepods.slice/every-n_1.example-kubepods-besteffort.slice/every-n_1.example-kubepods-besteffort-pod07fefad5_64d8_4787_8861_06e17941d8e4.slice",
			"every-n_1.example-kubepods-besteffort.slice"},
	} {
		l, err := newLayout(c.driver, c.root, c.node)
		if err != nil {
			t.Errorf("%s %q: %v", c.driver, c.root, err)
			continue
		}
		g := ofPod(c.class, podUID)
		if got := l.path(g); got != c.path {
			t.Errorf("%s %q, %s: the pod is at %s, want %s", c.driver, c.root, c.class, got, c.path)
		}
		name := c.path[strings.LastIndexByte(c.path, '/')+1:]
		if uid, ok := l.podIn(c.class, name); !ok || uid != podUID {
			t.Errorf("%s %q, %s: %s is said to be of pod %q, %t", c.driver, c.root, c.class, name, uid, ok)
		}
		for _, other := range []string{"burstable", "pod", "kubepods-burstable.slice", "kubepods-pod.slice", "kubepods-podx.scope", "init.scope", "system.slice", ""} {
			if uid, ok := l.podIn(corev1.PodQOSGuaranteed, other); ok {
				t.Errorf("%s %q: %s is taken for the cgroup of pod %q", c.driver, c.root, other, uid)
			}
		}
		if c.driver == Cgroupfs {
			continue
		}
		for _, g := range []group{allPods(), ofClass(corev1.PodQOSBurstable), g} {
			unit, _ := l.unit(g)
			if is, err := systemd.ExpandSlice(unit); err != nil || is != l.path(g) {
				t.Errorf("systemd has %s at %s (%v), and not at %s", unit, is, err, l.path(g))
			}
		}
		if unit, parent := l.unit(g); unit != name || parent != c.unit {
			t.Errorf("%q, %s: slice %s in %s, want %s in %s", c.root, c.class, unit, parent, name, c.unit)
		}
	}
}

func TestRootOfAll(t *testing.T) {
	l, err := newLayout(Systemd, "", "n")
	if err != nil {
		t.Fatal(err)
	}
	if unit, parent := l.unit(allPods()); unit != "kubepods.slice" || parent != "-.slice" || l.path(nil) != "/" {
		t.Errorf("all pods are in slice %s of %s, the root is %s", unit, parent, l.path(nil))
	}
}

func TestRootsThatAreNoSlices(t *testing.T) {
	for root, want := range map[string]string{
		"/with space":                    "cannot be a slice of systemd",
		"/a/@b":                          `"@b" cannot be a slice`,
		"/" + strings.Repeat("long", 60): "too long for the name of a slice",
	} {
		if _, err := newLayout(Systemd, root, "n"); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", root, err, want)
		}
		if _, err := New(Config{Driver: Cgroupfs, Root: root, Mount: t.TempDir()}); err != nil {
			t.Errorf("without systemd %s is as good as others: %v", root, err)
		}
	}
}

func TestContainerName(t *testing.T) {
	for _, c := range []struct {
		driver        Driver
		runtime, want string
	}{
		{Cgroupfs, "containerd", "0af9"}, {Cgroupfs, "cri-o", "crio-0af9"}, {Cgroupfs, "another", "0af9"},
		{Systemd, "containerd", "cri-containerd-0af9.scope"}, {Systemd, "cri-o", "crio-0af9.scope"},
	} {
		if got := ContainerName(c.driver, c.runtime, "0af9"); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.driver, c.runtime, got, c.want)
		}
	}
}
