package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podfacts "github.com/everynode/everynode/internal/pod"
)

// cgroups lays out ROOT/kubepods[/QOS]/podUID, in every hierarchy of cgroup v1 or in the one of v2, without systemd.
type cgroups struct {
	mount, root string
	// maxPIDs is how many processes and threads a pod may have; 0 for no limit.
	maxPIDs int64
	// sizes are the sizes of huge pages that are limited.
	sizes []string
	// weighing is held while the classes are weighed.
	weighing *sync.Mutex
}

// unified says whether the node has cgroup v2 alone.
func (c cgroups) unified() bool {
	_, err := os.Stat(filepath.Join(c.mount, "cgroup.controllers"))
	return err == nil
}

func (c cgroups) qosPath(qos corev1.PodQOSClass) string {
	top := path.Join("/", c.root, "kubepods")
	if qos == corev1.PodQOSGuaranteed {
		return top
	}
	return path.Join(top, strings.ToLower(string(qos)))
}

// podPath is the pod's cgroup, within each hierarchy.
func (c cgroups) podPath(pod *corev1.Pod) string {
	return path.Join(c.qosPath(podfacts.QOS(pod)), "pod"+string(pod.UID))
}

// hierarchies are the mount points that pods' cgroups are made in.
func (c cgroups) hierarchies() ([]string, error) {
	if c.unified() {
		return []string{c.mount}, nil
	}
	entries, err := os.ReadDir(c.mount)
	if err != nil {
		return nil, fmt.Errorf("list the cgroup hierarchies: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(c.mount, e.Name()))
		}
	}
	return out, nil
}

// ensurePod makes the pod's cgroup with the sum of its containers' requests and limits, for cpu and memory, and its limit of processes.
func (c cgroups) ensurePod(pod *corev1.Pod) error {
	sum := podTotals(pod)
	if c.unified() {
		if err := c.ensureUnified(pod, sum); err != nil {
			return err
		}
		return c.weigh()
	}
	files := []struct{ controller, file, value string }{
		{"cpu", "cpu.shares", strconv.FormatInt(cpuShares(sum.cpuRequest), 10)},
		{"cpu", "cpu.cfs_quota_us", quotaText(sum.cpuLimit, "-1")},
		{"memory", "memory.limit_in_bytes", limitText(sum.memoryLimit, "")},
		{"pids", "pids.max", limitText(c.maxPIDs, "max")},
	}
	for size, limit := range pageLimits(podfacts.Requests(pod), c.sizes) {
		files = append(files, struct{ controller, file, value string }{"hugetlb", "hugetlb." + size + ".limit_in_bytes", strconv.FormatInt(limit, 10)})
	}
	for _, f := range files {
		hierarchy := filepath.Join(c.mount, f.controller)
		if _, err := os.Stat(hierarchy); err != nil || f.value == "" {
			continue
		}
		dir := filepath.Join(hierarchy, c.podPath(pod))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the cgroup of pod %s: %w", pod.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, f.file), []byte(f.value), 0o644); err != nil {
			return fmt.Errorf("limit the cgroup of pod %s: %w", pod.Name, err)
		}
	}
	return c.weigh()
}

// makeUnified makes a cgroup and those above it, and returns its folder.
func (c cgroups) makeUnified(path string) (dir string, err error) {
	dir = c.mount
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		// A controller works in a cgroup only if all those above hand it down.
		if err := handDown(dir, c.controllers()); err != nil {
			return "", err
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return dir, nil
}

func (c cgroups) ensureUnified(pod *corev1.Pod, sum totals) error {
	dir, err := c.makeUnified(c.podPath(pod))
	if err != nil {
		return fmt.Errorf("make the cgroup of pod %s: %w", pod.Name, err)
	}
	weight := 1 + (cpuShares(sum.cpuRequest)-minShares)*9999/(maxShares-minShares)
	cpuMax := "max"
	if sum.cpuLimit > 0 {
		cpuMax = quotaText(sum.cpuLimit, "max")
	}
	files := map[string]string{
		"cpu.weight": strconv.FormatInt(weight, 10),
		"cpu.max":    cpuMax + " " + strconv.Itoa(quotaPeriod),
		"memory.max": limitText(sum.memoryLimit, "max"),
		"pids.max":   limitText(c.maxPIDs, "max"),
	}
	for size, limit := range pageLimits(podfacts.Requests(pod), c.sizes) {
		files["hugetlb."+size+".max"] = strconv.FormatInt(limit, 10)
	}
	for file, value := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
			return fmt.Errorf("limit the cgroup of pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// controllers are those that pods need.
func (c cgroups) controllers() []string {
	if len(c.sizes) > 0 {
		return []string{"cpu", "memory", "pids", "hugetlb"}
	}
	return []string{"cpu", "memory", "pids"}
}

// handDown has the cgroup's children use the controllers that pods need, where they do not yet: a cgroup with processes of its
// own refuses even to be told what it does already.
func handDown(dir string, controllers []string) error {
	file := filepath.Join(dir, "cgroup.subtree_control")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the cgroup controllers of %s: %w", dir, err)
	}
	have := strings.Fields(string(text))
	for _, controller := range controllers {
		if slices.Contains(have, controller) {
			continue
		}
		if err := os.WriteFile(file, []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("hand cgroup controller %s down in %s: %w", controller, dir, err)
		}
	}
	return nil
}

// swapLimit is the file of cgroup version 2 that limits swap.
const swapLimit = "memory.swap.max"

// limitsSwap says whether the swap of the pod's containers can be limited: with cgroup version 2, where the kernel counts it.
// Containers use none, as in a kubelet: a limit of memory would mean little otherwise.
func (c cgroups) limitsSwap(pod *corev1.Pod) bool {
	if !c.unified() {
		return false
	}
	_, err := os.Stat(filepath.Join(c.mount, c.podPath(pod), swapLimit))
	return err == nil
}

func quotaText(milli int64, none string) string {
	if milli == 0 {
		return none
	}
	return strconv.FormatInt(cpuQuota(milli), 10)
}

func limitText(n int64, none string) string {
	if n == 0 {
		return none
	}
	return strconv.FormatInt(n, 10)
}

// processes counts the processes and threads of the pod; 0 where that is not known.
func (c cgroups) processes(pod *corev1.Pod) int64 {
	dir := c.mount
	if !c.unified() {
		dir = filepath.Join(c.mount, "pids")
	}
	text, err := os.ReadFile(filepath.Join(dir, c.podPath(pod), "pids.current"))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// removePod removes the pod's cgroups, wherever they are.
func (c cgroups) removePod(uid types.UID) error {
	hierarchies, err := c.hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		for _, qos := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
			dir := filepath.Join(h, c.qosPath(qos), "pod"+string(uid))
			if err := removeTree(dir); err != nil {
				return fmt.Errorf("remove the cgroup of pod %s: %w", uid, err)
			}
		}
	}
	return c.weigh()
}

// removeTree removes a cgroup and those in it. A cgroup is removed as a folder, files and all.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// totals are a pod's sums, in thousandths of a cpu and in bytes. A limit of 0 is none.
type totals struct{ cpuRequest, cpuLimit, memoryLimit int64 }

func podTotals(pod *corev1.Pod) totals {
	requests := podfacts.Requests(pod)
	t := totals{cpuRequest: requests.Cpu().MilliValue()}
	if cpu, bounded := podfacts.Limit(pod, corev1.ResourceCPU); bounded {
		t.cpuLimit = cpu.MilliValue()
	}
	if memory, bounded := podfacts.Limit(pod, corev1.ResourceMemory); bounded {
		t.memoryLimit = memory.Value()
	}
	return t
}
