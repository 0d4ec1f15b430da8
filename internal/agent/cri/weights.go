package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// share is the file that says how much of the processor a cgroup gets beside others, with its bounds.
type share struct {
	hierarchy, file string
	least, most     int64
}

func (c cgroups) share() share {
	if c.unified() {
		return share{c.mount, "cpu.weight", 1, 10000}
	}
	return share{filepath.Join(c.mount, "cpu"), "cpu.shares", minShares, maxShares}
}

// weigh gives the cgroups of the classes their weights beside the Guaranteed pods: all Burstable pods weigh together what they
// asked for, and all BestEffort ones as little as there can be. Without that each class would weigh as much as a whole processor,
// however many pods are in it.
func (c cgroups) weigh() error {
	c.weighing.Lock()
	defer c.weighing.Unlock()
	s := c.share()
	for _, qos := range []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		dir := filepath.Join(s.hierarchy, c.qosPath(qos))
		sum := int64(0)
		if qos == corev1.PodQOSBurstable {
			var err error
			if sum, err = s.ofPods(dir); err != nil {
				return err
			}
		}
		if err := s.set(dir, min(max(sum, s.least), s.most)); err != nil {
			return err
		}
	}
	return nil
}

// ofPods is what the pods in a class's cgroup weigh together.
func (s share) ofPods(dir string) (sum int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("list the pods' cgroups in %s: %w", dir, err)
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), "pod") {
			continue
		}
		has, err := s.of(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		sum += has
	}
	return sum, nil
}

// of is a cgroup's weight, 0 if there is no such cgroup.
func (s share) of(dir string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, s.file))
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

// set sets the weight of a cgroup, if there is one, and if it is another.
func (s share) set(dir string, weight int64) error {
	has, err := s.of(dir)
	if err != nil || has == 0 || has == weight {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, s.file), []byte(strconv.FormatInt(weight, 10)), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set the weight of a cgroup: %w", err)
	}
	return nil
}
