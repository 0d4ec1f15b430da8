package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// pluginDirs are on every node of Kubernetes, so daemons with plugins of a node rely
// on them: they ask for a Directory there, not for DirectoryOrCreate.
var pluginDirs = []string{
	"/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry",
	"/var/lib/kubelet/pods",
}

// setUpHostPath checks that the host's path is of the wanted type, and makes it where the type says so.
func setUpHostPath(source *corev1.HostPathVolumeSource) error {
	if slices.Contains(strings.Split(source.Path, "/"), "..") {
		return fmt.Errorf("invalid HostPath `%s`: must not contain '..'", source.Path)
	}
	if source.Type == nil || *source.Type == corev1.HostPathUnset {
		return nil
	}
	switch *source.Type {
	case corev1.HostPathDirectory:
		if slices.Contains(pluginDirs, path.Clean(source.Path)) && missing(source.Path) {
			return makeHostDir(source.Path)
		}
	case corev1.HostPathDirectoryOrCreate:
		if missing(source.Path) {
			return makeHostDir(source.Path)
		}
	case corev1.HostPathFileOrCreate:
		if missing(source.Path) {
			return makeHostFile(source.Path)
		}
	}
	return checkHostPath(source.Path, *source.Type)
}

func checkHostPath(file string, kind corev1.HostPathType) error {
	var what string
	var want fs.FileMode
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		what, want = "directory", fs.ModeDir
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		what, want = "file", 0
	case corev1.HostPathSocket:
		what, want = "socket file", fs.ModeSocket
	case corev1.HostPathCharDev:
		what, want = "character device", fs.ModeDevice|fs.ModeCharDevice
	case corev1.HostPathBlockDev:
		what, want = "block device", fs.ModeDevice
	default:
		return fmt.Errorf("%s is an invalid volume type", kind)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Type() != want {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", file, what)
	}
	return nil
}

func missing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, os.ErrNotExist)
}

func makeHostDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make host directory: %w", err)
	}
	return nil
}

// makeHostFile makes an empty file; its directory must exist.
func makeHostFile(name string) error {
	file, err := os.OpenFile(name, os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("make host file: %w", err)
	}
	return file.Close()
}
