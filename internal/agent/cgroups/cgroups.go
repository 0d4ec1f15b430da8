package cgroups

import (
	"cmp"
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

	library "github.com/opencontainers/cgroups"
	legacy "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/cgroups/systemd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Config says where a node's cgroups are, and who makes them.
type Config struct {
	// Driver is the container runtime's; the default is Cgroupfs.
	Driver Driver
	// Root is the cgroup under which all pods are put. The default is /everynode/NODE, and with systemd the machine's own.
	Root string
	// Node is the node's name.
	Node string
	// Mount is where the cgroup file systems are mounted; the default is /sys/fs/cgroup.
	Mount string
	// PodPIDs is how many processes and threads a pod may have; 0 for no limit.
	PodPIDs int64
}

// Cgroups are those of a node's pods. It is safe for concurrent use.
type Cgroups struct {
	mount   string
	podPIDs int64
	// sizes are the sizes of huge pages that are limited, in the kernel's words such as 2MB.
	sizes  []string
	layout layout
	// former is the layout of the other driver, in which pods may be that were made before the runtime was given this one.
	former *layout
	// booted says whether systemd runs the machine.
	booted func() bool

	// systemd is asked by it, where that makes cgroups.
	systemd asking

	// weighing is held while the classes are weighed: that reads what all pods weigh, and then writes.
	weighing sync.Mutex
}

// New lays the cgroups out; it makes none.
func New(cfg Config) (*Cgroups, error) {
	cfg.Driver, cfg.Mount = cmp.Or(cfg.Driver, Cgroupfs), cmp.Or(cfg.Mount, "/sys/fs/cgroup")
	c := &Cgroups{
		mount:   cfg.Mount,
		podPIDs: cfg.PodPIDs,
		booted:  systemd.IsRunningSystemd,
		systemd: asking{patience: patience},
	}
	var err error
	c.layout, err = newLayout(cfg.Driver, cfg.Root, cfg.Node)
	if err != nil {
		return nil, err
	}
	other := Systemd
	if cfg.Driver == Systemd {
		other = Cgroupfs
	}
	// A root that cannot be had with the other driver was never used with it.
	if former, err := newLayout(other, cfg.Root, cfg.Node); err == nil {
		c.former = &former
	}
	if c.limitsPages() {
		c.sizes = library.HugePageSizes()
	}
	return c, nil
}

// Driver is who makes the cgroups.
func (c *Cgroups) Driver() Driver { return c.layout.driver }

// Root is the cgroup that all pods are under, within each hierarchy.
func (c *Cgroups) Root() string { return c.layout.path(nil) }

// Of is the pod's cgroup, within each hierarchy; the container runtime is told it in the same words.
func (c *Cgroups) Of(pod *corev1.Pod) string { return c.layout.path(groupOf(pod)) }

func groupOf(pod *corev1.Pod) group { return ofPod(podfacts.QOS(pod), pod.UID) }

// Unified says whether the machine has cgroups of version 2 alone.
func (c *Cgroups) Unified() bool {
	_, err := os.Stat(filepath.Join(c.mount, "cgroup.controllers"))
	return err == nil
}

// PageSizes are the sizes of huge pages that are limited; none where the machine cannot.
func (c *Cgroups) PageSizes() []string { return c.sizes }

// limitsPages says whether the machine can keep pods from taking huge pages that they did not ask for.
func (c *Cgroups) limitsPages() bool {
	if !c.Unified() {
		_, err := os.Stat(filepath.Join(c.mount, "hugetlb"))
		return err == nil
	}
	controllers, err := os.ReadFile(filepath.Join(c.mount, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
}

// LimitsSwap says whether the swap of the pod's containers can be limited: with version 2, where the kernel counts it.
func (c *Cgroups) LimitsSwap(pod *corev1.Pod) bool {
	if !c.Unified() {
		return false
	}
	_, err := os.Stat(filepath.Join(c.mount, c.Of(pod), "memory.swap.max"))
	return err == nil
}

// Prepare makes the cgroups of all pods and of the classes. Its error says why no pod can start here.
func (c *Cgroups) Prepare() error {
	if c.layout.driver == Systemd && !c.booted() {
		return errors.New(
			"the container runtime leaves cgroups to systemd, which does not run on this machine; set SystemdCgroup = false " +
				"in the runtime's configuration (containerd: /etc/containerd/config.toml) and restart it",
		)
	}
	for _, class := range classes {
		if err := c.apply(ofClass(class), &library.Resources{}); err != nil {
			return fmt.Errorf("make the cgroup %s: %w", c.layout.path(ofClass(class)), err)
		}
	}
	return c.weigh()
}

// Ensure makes the pod's cgroup with the sum of its containers' requests and limits.
func (c *Cgroups) Ensure(pod *corev1.Pod) error {
	r := limitsOf(pod).resources()
	requests := podfacts.Requests(pod)
	setShares(r, CPUShares(requests.Cpu().MilliValue()), c.Unified())
	pids := orUnlimited(c.podPIDs)
	r.PidsLimit, r.HugetlbLimit = &pids, PageLimits(requests, c.sizes)
	if err := c.apply(groupOf(pod), r); err != nil {
		return fmt.Errorf("make the cgroup of pod %s: %w", pod.Name, err)
	}
	return c.weigh()
}

// Widen raises the limits of CPU and memory of the pod's cgroup where they are lower than the pod's, and lowers none.
func (c *Cgroups) Widen(pod *corev1.Pod) error {
	want, r := limitsOf(pod).resources(), &library.Resources{}
	cpu, err := c.read(groupOf(pod), "cpu", "cpu.cfs_quota_us", "cpu.max")
	if err != nil {
		return fmt.Errorf("read the limits of pod %s: %w", pod.Name, err)
	}
	memory, err := c.read(groupOf(pod), "memory", "memory.limit_in_bytes", "memory.max")
	if err != nil {
		return fmt.Errorf("read the limits of pod %s: %w", pod.Name, err)
	}
	if higher(want.CpuQuota, cpu) {
		r.CpuPeriod, r.CpuQuota = want.CpuPeriod, want.CpuQuota
	}
	if higher(want.Memory, memory) {
		r.Memory = want.Memory
	}
	if err := c.set(groupOf(pod), r); err != nil {
		return fmt.Errorf("raise the limits of pod %s: %w", pod.Name, err)
	}
	return nil
}

// Processes counts the processes and threads of the pod; 0 where that is not known.
func (c *Cgroups) Processes(pod *corev1.Pod) int64 {
	text, err := c.read(groupOf(pod), "pids", "pids.current", "pids.current")
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n
}

// Remove removes the pod's cgroups, wherever they are.
func (c *Cgroups) Remove(uid types.UID) error {
	layouts := []layout{c.layout}
	if c.former != nil {
		layouts = append(layouts, *c.former)
	}
	for _, l := range layouts {
		for _, class := range classes {
			if err := c.remove(l, ofPod(class, uid)); err != nil {
				return fmt.Errorf("remove the cgroup of pod %s: %w", uid, err)
			}
		}
	}
	return c.weigh()
}

// Sweep removes the cgroups that pods left which are not live any more, by an agent that was killed meanwhile. One with
// processes in it is somebody's, and stays.
func (c *Cgroups) Sweep(live func(uid types.UID) bool) error {
	dirs, err := c.hierarchies()
	if err != nil {
		return err
	}
	left := map[types.UID]bool{}
	for _, mount := range dirs {
		for _, class := range classes {
			entries, err := os.ReadDir(filepath.Join(mount, c.layout.path(ofClass(class))))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("list the pods' cgroups: %w", err)
			}
			for _, e := range entries {
				if uid, ok := c.layout.podIn(class, e.Name()); ok && e.IsDir() && !live(uid) {
					left[uid] = left[uid] || occupied(filepath.Join(mount, c.layout.path(ofClass(class)), e.Name()))
				}
			}
		}
	}
	var errs []error
	for uid, used := range left {
		if !used {
			errs = append(errs, c.Remove(uid))
		}
	}
	return errors.Join(append(errs, c.weigh())...)
}

// occupied says whether there are processes in a cgroup or below it; also when that cannot be found out.
func occupied(dir string) bool {
	pids, err := library.GetAllPids(dir)
	return err != nil || len(pids) > 0
}

// hierarchies are the mount points that pods' cgroups are in.
func (c *Cgroups) hierarchies() ([]string, error) {
	if c.Unified() {
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

// controllers are those that pods need, as far as the machine has them: version 1 can do without.
func (c *Cgroups) controllers() []string {
	names := []string{"cpu", "memory", "pids"}
	if len(c.sizes) > 0 {
		names = append(names, "hugetlb")
	}
	if c.Unified() {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(c.mount, name))
		return err != nil
	})
}

// dir is the folder in which the group's files of a controller are.
func (c *Cgroups) dir(l layout, g group, controller string) string {
	if c.Unified() {
		return filepath.Join(c.mount, l.path(g))
	}
	return filepath.Join(c.mount, controller, l.path(g))
}

// read reads a file of the group, which the versions of cgroups name differently.
func (c *Cgroups) read(g group, controller, old, unified string) (string, error) {
	file := old
	if c.Unified() {
		file = unified
	}
	text, err := os.ReadFile(filepath.Join(c.dir(c.layout, g, controller), file))
	return string(text), err
}

// manager is the library's for the group.
func (c *Cgroups) manager(l layout, g group, r *library.Resources) (library.Manager, error) {
	// Which devices containers have is between them and the runtime.
	r.SkipDevices, r.SkipFreezeOnSet = true, true
	config := &library.Cgroup{Resources: r}
	paths := map[string]string{}
	for _, controller := range c.controllers() {
		paths[controller] = c.dir(l, g, controller)
	}
	leaveOut(r, paths)
	if l.driver == Cgroupfs && c.Unified() {
		return fs2.NewManager(config, c.dir(l, g, ""))
	}
	if l.driver == Cgroupfs {
		return legacy.NewManager(config, paths)
	}
	config.Systemd = true
	config.Name, config.Parent = l.unit(g)
	if c.Unified() {
		return systemd.NewUnifiedManager(config, c.dir(l, g, ""))
	}
	return systemd.NewLegacyManager(config, paths)
}

// leaveOut takes out what the kernel has no controller for: the library would insist, and everynode doctor tells of it.
func leaveOut(r *library.Resources, paths map[string]string) {
	for controller, drop := range map[string]func(){
		"cpu":    func() { r.CpuShares, r.CpuPeriod, r.CpuQuota = 0, 0, 0 },
		"memory": func() { r.Memory = 0 },
		"pids":   func() { r.PidsLimit = nil },
	} {
		if paths[controller] == "" {
			drop()
		}
	}
}

// apply makes the group, if it is not there, and sets what it may use.
func (c *Cgroups) apply(g group, r *library.Resources) error {
	return c.within("make the cgroup", c.layout, g, func() error {
		m, err := c.manager(c.layout, g, r)
		if err != nil {
			return err
		}
		if err := m.Apply(-1); err != nil {
			return err
		}
		if err := c.checkControllers(g); err != nil {
			return err
		}
		return m.Set(r)
	})
}

// within does what systemd may be asked in, in bounded time.
func (c *Cgroups) within(what string, l layout, g group, call func() error) error {
	if l.driver != Systemd {
		return call()
	}
	return c.systemd.ask(what, l.path(g), call)
}

// checkControllers says which controller does not work in the group. With version 2 it does only if all groups above
// hand it down.
func (c *Cgroups) checkControllers(g group) error {
	if !c.Unified() {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(c.dir(c.layout, g, ""), "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the cgroup's controllers: %w", err)
	}
	for _, controller := range c.controllers() {
		if !slices.Contains(strings.Fields(string(text)), controller) {
			return fmt.Errorf(
				"the controller %s does not work in cgroup %s: one above it does not hand it down (cgroup.subtree_control), or "+
					"the kernel lacks it",
				controller, path.Join("/", c.layout.path(g)),
			)
		}
	}
	return nil
}

// set sets what a group may use that is there.
func (c *Cgroups) set(g group, r *library.Resources) error {
	return c.within("set the limits of the cgroup", c.layout, g, func() error {
		m, err := c.manager(c.layout, g, r)
		if err != nil {
			return err
		}
		return m.Set(r)
	})
}

// remove removes the group, and those in it.
func (c *Cgroups) remove(l layout, g group) error {
	hierarchies, err := c.hierarchies()
	if err != nil {
		return err
	}
	dirs := slices.DeleteFunc(hierarchies, func(mount string) bool {
		_, err := os.Stat(filepath.Join(mount, l.path(g)))
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(dirs) == 0 {
		return nil
	}
	if l.driver == Systemd && c.booted() {
		err := c.within("remove the cgroup", l, g, func() error {
			m, err := c.manager(l, g, &library.Resources{})
			if err != nil {
				return err
			}
			return m.Destroy()
		})
		if err != nil {
			return err
		}
	}
	for _, mount := range dirs {
		if err := removeTree(filepath.Join(mount, l.path(g))); err != nil {
			return err
		}
	}
	return nil
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
