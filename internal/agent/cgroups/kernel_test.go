package cgroups

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// realMount is where the kernel's cgroups are.
const realMount = "/sys/fs/cgroup"

// realGroups are cgroups of the machine's kernel, made by a driver, below a root that goes with the test. Of systemd a bus plays the
// part: which units there are is its word; the library makes the folders of controllers that systemd does not know.
func realGroups(t *testing.T, driver Driver) (*Cgroups, *bus) {
	t.Helper()
	needs.Root(t, "needs root, to make cgroups")
	c := newGroups(t, Config{Driver: driver, Root: fmt.Sprintf("/everynodetest%d%s", os.Getpid(), driver), Mount: realMount})
	if c.Unified() {
		t.Skip("needs cgroups of version 1; with version 2 systemd itself is in the way")
	}
	c.booted = func() bool { return driver == Systemd }
	t.Cleanup(func() {
		hierarchies, err := c.hierarchies()
		if err != nil {
			t.Error(err)
		}
		for _, h := range hierarchies {
			for _, root := range []string{c.Root(), c.former.path(nil)} {
				if err := removeTree(filepath.Join(h, root)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if driver == Systemd {
		return c, startBus(t)
	}
	return c, nil
}

// in is a folder of the kernel.
func (c *Cgroups) in(controller string, g group) string { return c.dir(c.layout, g, controller) }

func there(t *testing.T, path string, want bool) {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) == want {
		t.Errorf("%s: %v, and it should be there: %t", path, err, want)
	}
}

// With both drivers, pods come, are resized and go, and the classes weigh what their pods ask for; the kernel shows it.
func TestPodsInTheKernel(t *testing.T) {
	for _, driver := range []Driver{Cgroupfs, Systemd} {
		t.Run(string(driver), func(t *testing.T) {
			c, units := realGroups(t, driver)
			if err := c.Prepare(); err != nil {
				t.Fatal(err)
			}
			ensure := func(pod *corev1.Pod) {
				t.Helper()
				if err := c.Ensure(pod); err != nil {
					t.Fatal(err)
				}
			}
			weighs := func(when, burstable string) {
				t.Helper()
				wants(t, when, c.in("cpu", ofClass(corev1.PodQOSBurstable)), map[string]string{"cpu.shares": burstable})
				wants(t, when, c.in("cpu", ofClass(corev1.PodQOSBestEffort)), map[string]string{"cpu.shares": "2"})
			}
			weighs("without pods", "2")
			ensure(testPod("none", nil, nil))
			ensure(testPod("half", amounts("cpu", "500m"), nil))
			weighs("with a half", "512")
			two := testPod("two", amounts("cpu", "2"), amounts("cpu", "3", "memory", "64Mi"))
			ensure(two)
			ensure(two)
			weighs("with two more", "2560")
			g := ofPod(corev1.PodQOSBurstable, "two")
			wants(t, "made", c.in("memory", g), map[string]string{"memory.limit_in_bytes": "67108864"})
			wants(t, "made", c.in("cpu", g), map[string]string{"cpu.cfs_quota_us": "300000", "cpu.shares": "2048"})
			two.Spec.Containers[0].Resources.Limits = amounts("cpu", "1", "memory", "128Mi")
			if err := c.Widen(two); err != nil {
				t.Fatal(err)
			}
			wants(t, "widened", c.in("memory", g), map[string]string{"memory.limit_in_bytes": "134217728"})
			wants(t, "widened", c.in("cpu", g), map[string]string{"cpu.cfs_quota_us": "300000"})
			ensure(two)
			wants(t, "narrowed", c.in("cpu", g), map[string]string{"cpu.cfs_quota_us": "100000"})
			if n := c.Processes(two); n != 0 {
				t.Errorf("%d processes in a pod without any", n)
			}
			if units != nil {
				unit, _ := c.layout.unit(g)
				if quota, shares, memory := units.property(unit, "CPUQuotaPerSecUSec"), units.property(unit, "CPUShares"), units.property(unit, "MemoryLimit"); quota != "1000000" || shares != "2048" || memory != "134217728" {
					t.Errorf("systemd was told a quota of %s, %s shares and %s bytes", quota, shares, memory)
				}
			}
			if err := c.Remove("two"); err != nil {
				t.Fatal(err)
			}
			there(t, c.in("memory", g), false)
			weighs("after it has gone", "512")
			if units != nil {
				if unit, _ := c.layout.unit(g); units.has(unit) {
					t.Errorf("systemd has %s still", unit)
				}
			}
		})
	}
}

// All pods together are bounded by the kernel, also when there are none yet, and by systemd, so that it does not lift the bound.
func TestBoundInTheKernel(t *testing.T) {
	for _, driver := range []Driver{Cgroupfs, Systemd} {
		t.Run(string(driver), func(t *testing.T) {
			c, units := realGroups(t, driver)
			if err := c.Bound(Room{CPU: 1500, Memory: 1 << 30, PIDs: 1000}); err != nil {
				t.Fatal(err)
			}
			wants(t, "bounded", c.in("memory", allPods()), map[string]string{"memory.limit_in_bytes": "1073741824"})
			wants(t, "bounded", c.in("pids", allPods()), map[string]string{"pids.max": "1000"})
			if units != nil {
				unit, _ := c.layout.unit(allPods())
				if most, memory := units.property(unit, "TasksMax"), units.property(unit, "MemoryLimit"); most != "1000" || memory != "1073741824" {
					t.Errorf("systemd was told of %s tasks and %s bytes", most, memory)
				}
			}
			if err := c.Bound(Room{CPU: 1500}); err != nil {
				t.Fatal(err)
			}
			wants(t, "lifted", c.in("pids", allPods()), map[string]string{"pids.max": "max"})
		})
	}
}

// What pods of an earlier run left goes, also where the other driver put it; what has a process in it, or belongs to a pod that lives,
// stays.
func TestSweepInTheKernel(t *testing.T) {
	for _, driver := range []Driver{Cgroupfs, Systemd} {
		t.Run(string(driver), func(t *testing.T) {
			c, units := realGroups(t, driver)
			for _, name := range []string{"gone", "busy", "live"} {
				if err := c.Ensure(testPod(name, amounts("cpu", "100m"), nil)); err != nil {
					t.Fatal(err)
				}
			}
			group := func(name string) group { return ofPod(corev1.PodQOSBurstable, types.UID(name)) }
			sleeper := exec.Command("sleep", "600")
			sleeper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := sleeper.Start(); err != nil {
				t.Fatal(err)
			}
			end := func() {
				_ = sleeper.Process.Kill()
				_ = sleeper.Wait()
			}
			t.Cleanup(end)
			write(t, filepath.Join(c.in("pids", group("busy")), "cgroup.procs"), strconv.Itoa(sleeper.Process.Pid))
			former := filepath.Join(realMount, "memory", c.former.path(ofPod(corev1.PodQOSBestEffort, "gone")))
			if err := os.MkdirAll(former, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := c.Sweep(func(uid types.UID) bool { return uid == "live" }); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]bool{"gone": false, "busy": true, "live": true} {
				there(t, c.in("cpu", group(name)), want)
			}
			there(t, former, false)
			wants(t, "swept", c.in("cpu", ofClass(corev1.PodQOSBurstable)), map[string]string{"cpu.shares": "204"})
			if units != nil {
				if unit, _ := c.layout.unit(group("gone")); units.has(unit) || len(units.stopped) != 1 {
					t.Errorf("systemd was told to stop %v, and not %s alone", units.stopped, unit)
				}
			}
			end()
			if err := c.Sweep(func(uid types.UID) bool { return uid == "live" }); err != nil {
				t.Fatal(err)
			}
			there(t, c.in("cpu", group("busy")), false)
		})
	}
}

// Processes that the runtime has forgotten are killed, and those of no other pod.
func TestStraysInTheKernel(t *testing.T) {
	for _, driver := range []Driver{Cgroupfs, Systemd} {
		t.Run(string(driver), func(t *testing.T) {
			c, _ := realGroups(t, driver)
			ended := map[string]chan struct{}{}
			var all []*exec.Cmd
			for _, name := range []string{"forgotten", "other"} {
				err := c.Ensure(testPod(name, amounts("cpu", "100m"), nil))
				if err != nil {
					t.Fatal(err)
				}
				sleeper := exec.Command("sleep", "600")
				sleeper.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				err = sleeper.Start()
				if err != nil {
					t.Fatal(err)
				}
				end := make(chan struct{})
				all, ended[name] = append(all, sleeper), end
				go func() {
					_ = sleeper.Wait()
					close(end)
				}()
				group := ofPod(corev1.PodQOSBurstable, types.UID(name))
				write(t, filepath.Join(c.in("pids", group), "cgroup.procs"), strconv.Itoa(sleeper.Process.Pid))
			}
			for _, want := range []int{1, 0} {
				killed, err := c.KillStrays(t.Context(), "forgotten")
				if err != nil || killed != want {
					t.Errorf("%d processes were killed, %v, want %d", killed, err, want)
				}
			}
			<-ended["forgotten"]
			select {
			case <-ended["other"]:
				t.Error("another pod's process was killed")
			default:
			}
			_ = all[1].Process.Kill()
			<-ended["other"]
		})
	}
}
