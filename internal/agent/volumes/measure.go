package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Space is what files take of a disk: bytes, and files with folders.
type Space struct{ Bytes, Inodes int64 }

// Measure adds up what is below a folder, in blocks of the disk. It does not leave the file system, and counts a file with several
// names once. What goes away meanwhile is left out, and so is a folder that is not there.
func Measure(dir string) (Space, error) {
	var total Space
	var device uint64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		var stat unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &stat)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case path == dir:
			device = stat.Dev
		case stat.Dev != device:
			return fs.SkipDir
		}
		if stat.Nlink > 1 && !entry.IsDir() {
			if seen[stat.Ino] {
				return nil
			}
			seen[stat.Ino] = true
		}
		total.Bytes += stat.Blocks * 512
		total.Inodes++
		return nil
	})
	if err != nil {
		return Space{}, fmt.Errorf("measure %s: %w", dir, err)
	}
	return total, nil
}

// MeasureEmptyDirs measures the pod's empty directories on disk, by volume.
func (m *Manager) MeasureEmptyDirs(pod *corev1.Pod) (map[string]Space, error) {
	out := map[string]Space{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault {
			continue
		}
		dir := m.volumeDir(pod.UID, "empty-dir", v.Name)
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		space, err := Measure(dir)
		if err != nil {
			return nil, err
		}
		out[v.Name] = space
	}
	return out, nil
}
