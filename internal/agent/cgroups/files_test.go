package cgroups

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	library "github.com/opencontainers/cgroups"
)

// fakeFiles has the library take files for cgroups, and makes these.
func fakeFiles(t *testing.T, files map[string]string) (mount string) {
	t.Helper()
	library.TestMode = true
	t.Cleanup(func() { library.TestMode = false })
	mount = t.TempDir()
	for path, text := range files {
		write(t, filepath.Join(mount, path), text)
	}
	return mount
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wants compares what is in files with what should be; % stands for the folder.
func wants(t *testing.T, when, dir string, files map[string]string) {
	t.Helper()
	for file, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %s is %q (%v), want %q", when, file, got, err, want)
		}
	}
}

func newGroups(t *testing.T, cfg Config) *Cgroups {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// version1 are the hierarchies of a machine with version 1.
func version1(t *testing.T) (mount string) {
	t.Helper()
	mount = fakeFiles(t, nil)
	for _, controller := range []string{"cpu", "memory", "pids", "hugetlb", "freezer"} {
		if err := os.Mkdir(filepath.Join(mount, controller), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return mount
}

// A pod's cgroup has what its containers ask for together, and a limit of all that the machine can limit.
func TestPodsCgroup(t *testing.T) {
	mount := version1(t)
	c := newGroups(t, Config{Node: "n1", Mount: mount, PodPIDs: 100})
	c.sizes = []string{"2MB", "1GB"}
	if err := c.Ensure(testPod("a", nil, amounts("cpu", "500m", "memory", "10Mi", "hugepages-2Mi", "6Mi"))); err != nil {
		t.Fatal(err)
	}
	wants(t, "limited", mount, map[string]string{
		"cpu/everynode/n1/kubepods/poda/cpu.shares": "512", "cpu/everynode/n1/kubepods/poda/cpu.cfs_quota_us": "50000", "cpu/everynode/n1/kubepods/poda/cpu.cfs_period_us": "100000",
		"memory/everynode/n1/kubepods/poda/memory.limit_in_bytes": "10485760", "pids/everynode/n1/kubepods/poda/pids.max": "100",
		"hugetlb/everynode/n1/kubepods/poda/hugetlb.2MB.limit_in_bytes": "6291456", "hugetlb/everynode/n1/kubepods/poda/hugetlb.1GB.limit_in_bytes": "0",
	})
	c.podPIDs = 0
	if err := c.Ensure(testPod("b", amounts("cpu", "100m"), nil)); err != nil {
		t.Fatal(err)
	}
	wants(t, "not limited", mount, map[string]string{
		"cpu/everynode/n1/kubepods/burstable/podb/cpu.shares": "102", "cpu/everynode/n1/kubepods/burstable/podb/cpu.cfs_quota_us": "-1",
		"memory/everynode/n1/kubepods/burstable/podb/memory.limit_in_bytes": "-1", "pids/everynode/n1/kubepods/burstable/podb/pids.max": "max",
	})
	// Where the kernel lacks a controller, the others count.
	if err := os.RemoveAll(filepath.Join(mount, "pids")); err != nil {
		t.Fatal(err)
	}
	if err := c.Ensure(testPod("b", amounts("cpu", "200m"), nil)); err != nil {
		t.Error(err)
	}
	wants(t, "without a controller", mount, map[string]string{"cpu/everynode/n1/kubepods/burstable/podb/cpu.shares": "204"})
}

// A pod that is resized has its limits raised first, and lowered only at the end.
func TestWiden(t *testing.T) {
	for version, c := range map[string]struct {
		files       map[string]string
		cpu, memory string
		max         string // no limit
		quota       string
	}{
		"1": {map[string]string{"cpu/everynode/n/kubepods/poda/cpu.cfs_quota_us": "50000", "memory/everynode/n/kubepods/poda/memory.limit_in_bytes": "100"},
			"cpu/everynode/n/kubepods/poda/cpu.cfs_quota_us", "memory/everynode/n/kubepods/poda/memory.limit_in_bytes", "-1", ""},
		"2": {map[string]string{"cgroup.controllers": "cpu memory pids", "everynode/n/kubepods/poda/cgroup.controllers": "cpu memory pids",
			"everynode/n/kubepods/poda/cpu.max": "50000 100000", "everynode/n/kubepods/poda/memory.max": "100"},
			"everynode/n/kubepods/poda/cpu.max", "everynode/n/kubepods/poda/memory.max", "max", " 100000"},
	} {
		mount := fakeFiles(t, c.files)
		g := newGroups(t, Config{Node: "n", Mount: mount})
		for _, step := range []struct{ cpu, memory, wantCPU, wantMemory string }{
			{"400m", "50", "50000" + c.quota, "100"}, {"700m", "50", "70000" + c.quota, "100"}, {"600m", "300", "70000" + c.quota, "300"},
		} {
			if err := g.Widen(testPod("a", nil, amounts("cpu", step.cpu, "memory", step.memory))); err != nil {
				t.Errorf("version %s: %v", version, err)
			}
			wants(t, "version "+version+", widened to "+step.cpu+" and "+step.memory, mount, map[string]string{c.cpu: step.wantCPU, c.memory: step.wantMemory})
		}
	}
}

// All pods together have what the node has for them, and a bound that is lifted is gone.
func TestBoundOfAllPods(t *testing.T) {
	mount := version1(t)
	c := newGroups(t, Config{Node: "n", Mount: mount})
	c.sizes = []string{"2MB", "1GB"}
	dir := "/everynode/n/kubepods/"
	for _, step := range []struct {
		room                        Room
		memory, pids, shares, pages string
	}{
		{Room{CPU: 1500, Memory: 1 << 30, PIDs: 1000, HugePages: amounts("hugepages-2Mi", "64Mi", "hugepages-1Gi", "0")}, "1073741824", "1000", "1536", "67108864"},
		{Room{CPU: 1500, Memory: 1 << 29, PIDs: 10, HugePages: amounts("hugepages-2Mi", "0")}, "536870912", "10", "1536", "0"},
		{Room{CPU: 2000}, "-1", "max", "2048", "0"},
	} {
		if err := c.Bound(step.room); err != nil {
			t.Fatal(err)
		}
		wants(t, "bounded", mount, map[string]string{"memory" + dir + "memory.limit_in_bytes": step.memory, "pids" + dir + "pids.max": step.pids,
			"cpu" + dir + "cpu.shares": step.shares, "hugetlb" + dir + "hugetlb.2MB.limit_in_bytes": step.pages, "hugetlb" + dir + "hugetlb.1GB.limit_in_bytes": "0"})
	}
}

func TestWithoutSystemd(t *testing.T) {
	c := newGroups(t, Config{Driver: Systemd, Mount: version1(t)})
	c.booted = func() bool { return false }
	if err := c.Prepare(); err == nil || !strings.Contains(err.Error(), "set SystemdCgroup = false in the runtime's configuration") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v: does it say what to do?", err)
	}
}
