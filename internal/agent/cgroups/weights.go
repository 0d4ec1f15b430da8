package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	library "github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
)

// weigh gives the cgroups of the classes their weights beside the Guaranteed pods: all Burstable pods weigh together
// what they asked for, and all BestEffort ones as little as there can be. Without that each class would weigh as much
// as a whole processor, however many pods are in it.
func (c *Cgroups) weigh() error {
	c.weighing.Lock()
	defer c.weighing.Unlock()
	least, most := int64(minShares), int64(maxShares)
	if c.Unified() {
		least, most = 1, maxWeight
	}
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		sum := int64(0)
		if class == corev1.PodQOSBurstable {
			var err error
			if sum, err = c.weightOfPods(class); err != nil {
				return err
			}
		}
		if err := c.setWeight(ofClass(class), min(max(sum, least), most)); err != nil {
			return err
		}
	}
	return nil
}

// weightOfPods is what the pods of a class weigh together.
func (c *Cgroups) weightOfPods(class corev1.PodQOSClass) (sum int64, err error) {
	dir := c.dir(c.layout, ofClass(class), "cpu")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("list the pods' cgroups in %s: %w", dir, err)
	}
	for _, e := range entries {
		if _, ok := c.layout.podIn(class, e.Name()); !ok || !e.IsDir() {
			continue
		}
		has, err := c.weightIn(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		sum += has
	}
	return sum, nil
}

// weightIn is a cgroup's weight, 0 if there is no such cgroup.
func (c *Cgroups) weightIn(dir string) (int64, error) {
	file := "cpu.shares"
	if c.Unified() {
		file = "cpu.weight"
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the weight of a cgroup: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the weight of %s: %w", dir, err)
	}
	return n, nil
}

// setWeight sets the weight of a group, if it is there, and has another.
func (c *Cgroups) setWeight(g group, weight int64) error {
	has, err := c.weightIn(c.dir(c.layout, g, "cpu"))
	if err != nil || has == 0 || has == weight {
		return err
	}
	r := &library.Resources{CpuShares: uint64(weight)}
	if c.Unified() {
		r = &library.Resources{CpuWeight: uint64(weight)}
	}
	// Systemd may have forgotten a slice whose cgroup is there.
	if err := c.apply(g, r); err != nil {
		return fmt.Errorf("set the weight of cgroup %s: %w", c.layout.path(g), err)
	}
	return nil
}
