package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// BoundPods has all pods of the node together have so many bytes of memory at most: when they want more, the kernel ends some of
// their processes, and none of those for which the rest is kept. Without bytes there is no bound. The kernel may refuse it while they have
// more.
func (r *Runtime) BoundPods(bytes int64) error {
	if err := r.cgroups.bound(bytes); err != nil {
		return fmt.Errorf("bound the memory of all pods: %w", err)
	}
	return nil
}

func (c cgroups) bound(bytes int64) error {
	all := c.qosPath(corev1.PodQOSGuaranteed) // it has the classes in it
	file, none := filepath.Join(c.mount, "memory", all, "memory.limit_in_bytes"), "-1"
	if c.unified() {
		file, none = filepath.Join(c.mount, all, "memory.max"), "max"
	}
	if bytes <= 0 {
		// There may be a bound of an earlier run.
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(none)
		return errors.Join(err, f.Close())
	}
	if c.unified() {
		if _, err := c.makeUnified(all); err != nil {
			return err
		}
	} else if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strconv.FormatInt(bytes, 10)), 0o644)
}
