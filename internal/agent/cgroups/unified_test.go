package cgroups

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	library "github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// ownMounts runs the rest of a test in a process of its own, in which nobody minds what is mounted where. It says whether this is that
// process.
func ownMounts(t *testing.T) bool {
	t.Helper()
	const variable = "EVERYNODE_TEST_OWN_MOUNTS"
	if os.Getenv(variable) == t.Name() {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	needs.Root(t, "needs root, to mount")
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	return false
}

// With version 2 the same is written to the files of one hierarchy, by both drivers. The library has no other place for them than
// the machine's, so files are mounted there; what the kernel makes of them is seen on machines that have version 2.
func TestVersion2(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	if err := unix.Mount("tmpfs", realMount, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	library.TestMode = true
	const all = "cpuset cpu io memory hugetlb pids"
	for _, driver := range []Driver{Cgroupfs, Systemd} {
		write(t, realMount+"/cgroup.controllers", all)
		c := newGroups(t, Config{Driver: driver, Root: "/every/n", Mount: realMount, PodPIDs: 9})
		c.booted, c.sizes = func() bool { return true }, []string{"2MB"}
		var units *bus
		if driver == Systemd {
			units = startBus(t)
		}
		pod := testPod("a", amounts("cpu", "1", "hugepages-2Mi", "4Mi"), amounts("cpu", "1500m", "memory", "10Mi", "hugepages-2Mi", "4Mi"))
		// The kernel gives every new cgroup its files.
		for _, g := range []group{nil, allPods(), ofClass(corev1.PodQOSBurstable), ofClass(corev1.PodQOSBestEffort), groupOf(pod)} {
			write(t, c.in("", g)+"/cgroup.controllers", all)
			write(t, c.in("", g)+"/cpu.weight", "7")
		}
		if err := c.Prepare(); err != nil {
			t.Fatal(err)
		}
		if err := c.Ensure(pod); err != nil {
			t.Fatal(err)
		}
		wants(t, string(driver), c.in("", groupOf(pod)), map[string]string{"cpu.weight": "100", "cpu.max": "150000 100000", "memory.max": "10485760", "pids.max": "9", "hugetlb.2MB.max": "4194304"})
		wants(t, string(driver), c.in("", ofClass(corev1.PodQOSBurstable)), map[string]string{"cpu.weight": "100"})
		wants(t, string(driver), c.in("", ofClass(corev1.PodQOSBestEffort)), map[string]string{"cpu.weight": "1"})
		for _, g := range []group{nil, allPods(), ofClass(corev1.PodQOSBurstable)} {
			if text, err := os.ReadFile(c.in("", g) + "/cgroup.subtree_control"); err != nil || !strings.Contains(string(text), "+memory") {
				t.Errorf("%s: %s hands down %q (%v)", driver, c.layout.path(g), text, err)
			}
		}
		if err := c.Bound(Room{CPU: 2000, Memory: 1 << 30, PIDs: 1000, HugePages: amounts("hugepages-2Mi", "64Mi")}); err != nil {
			t.Fatal(err)
		}
		wants(t, string(driver), c.in("", allPods()), map[string]string{"cpu.weight": "174", "memory.max": "1073741824", "pids.max": "1000", "hugetlb.2MB.max": "67108864"})
		if err := c.Bound(Room{CPU: 2000}); err != nil {
			t.Fatal(err)
		}
		wants(t, string(driver), c.in("", allPods()), map[string]string{"memory.max": "max", "pids.max": "max", "hugetlb.2MB.max": "0"})
		if units == nil {
			continue
		}
		if got := units.property("every-n-kubepods-burstable-poda.slice", "CPUWeight"); got != "100" {
			t.Errorf("systemd was told a weight of %s for the pod", got)
		}
		if got := units.property("every-n-kubepods-burstable.slice", "CPUWeight"); got != "100" {
			t.Errorf("systemd was told a weight of %s for the class", got)
		}
		if got := units.property("every-n-kubepods-burstable-poda.slice", "Wants"); got != "[every-n-kubepods-burstable.slice]" {
			t.Errorf("the pod's slice wants %s", got)
		}
	}
}

// Where a controller is not handed down, which the kernel shows by a file that is not there, that is said. This machine's own hierarchy of
// version 2 is such a one where version 1 has the controllers.
func TestControllerThatIsNotHandedDown(t *testing.T) {
	if !ownMounts(t) {
		return
	}
	if newGroups(t, Config{Mount: realMount}).Unified() {
		t.Skip("needs cgroups of version 1, which take the controllers from version 2")
	}
	if err := unix.Mount("none", realMount, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	c := newGroups(t, Config{Root: "/everynodetest2", Mount: realMount})
	err := c.Prepare()
	if removeErr := removeTree(filepath.Join(realMount, c.Root())); removeErr != nil {
		t.Error(removeErr)
	}
	if err == nil || !strings.Contains(err.Error(), "the controller cpu does not work in cgroup /everynodetest2/kubepods: one above it does not hand it down") {
		t.Errorf("%v: does it say what is missing?", err)
	}
}
