package csi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Share makes the folder, and has what is mounted below it, by the node or in a container, be seen by both: drivers
// mount there from containers. On most machines all is shared from the start, and nothing is changed.
func Share(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the folder of storage drivers: %w", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("find the folder of storage drivers: %w", err)
	}
	at, err := mountOf(real)
	if err != nil {
		return err
	}
	if isShared(at) {
		return nil
	}
	if at.Mountpoint != real {
		// Only a mount can be shared, and of the machine's own no more than is needed. What is mounted below stays in sight.
		if err := unix.Mount(real, real, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s on itself, for storage drivers: %w", real, err)
		}
	}
	if err := unix.Mount("", real, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts below %s with storage drivers: %w", real, err)
	}
	return nil
}

func isShared(m *mountinfo.Info) bool {
	for field := range strings.FieldsSeq(m.Optional) {
		if strings.HasPrefix(field, "shared:") {
			return true
		}
	}
	return false
}

// mountOf returns the mount that the path is on. Of two on one place the later covers the earlier.
func mountOf(path string) (*mountinfo.Info, error) {
	above, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil {
		return nil, fmt.Errorf("find out what %s is mounted on: %w", path, err)
	}
	var found *mountinfo.Info
	for _, m := range above {
		if found == nil || len(m.Mountpoint) >= len(found.Mountpoint) {
			found = m
		}
	}
	if found == nil {
		return nil, fmt.Errorf("find out what %s is mounted on: nothing in /proc/self/mountinfo", path)
	}
	return found, nil
}
