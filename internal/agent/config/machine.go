package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CheckMachine refuses a machine, whose files are below root, that the node is told not to run on.
func (c *Config) CheckMachine(root string) error {
	if c.FailSwapOn {
		swaps, err := os.ReadFile(filepath.Join(root, "proc/swaps"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("find out whether the machine swaps: %w", err)
		}
		// The first line is a heading.
		if lines := bytes.Split(bytes.TrimSpace(swaps), []byte("\n")); len(lines) > 1 {
			return fmt.Errorf(
				"the machine swaps to %s, and failSwapOn says not to run then; switch it off with swapoff -a",
				bytes.Fields(lines[1])[0],
			)
		}
	}
	if c.FailCgroupV1 {
		_, err := os.Stat(filepath.Join(root, "sys/fs/cgroup/cgroup.controllers"))
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New(
				"the machine has cgroups of version 1, and failCgroupV1 says not to run then; start it with version 2 " +
					"(systemd.unified_cgroup_hierarchy=1)",
			)
		}
		if err != nil {
			return fmt.Errorf("find out which cgroups the machine has: %w", err)
		}
	}
	return nil
}

// HasAppArmor reports whether the kernel, whose files are below root, enforces AppArmor.
func HasAppArmor(root string) bool {
	enabled, err := os.ReadFile(filepath.Join(root, "sys/module/apparmor/parameters/enabled"))
	return err == nil && strings.HasPrefix(string(enabled), "Y")
}
