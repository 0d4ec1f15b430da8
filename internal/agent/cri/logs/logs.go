package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/untrusted/plainfile"
)

// logFolder names the folder of a pod's logs. Of a name that does not fit into one, which
// the API allows, it has the beginning.
func logFolder(namespace, name, uid string) string {
	const most = 255 // what file systems allow
	room := max(most-len(namespace)-len(uid)-2, 0)
	return namespace + "_" + name[:min(len(name), room)] + "_" + uid
}

// Directory is the folder of the logs of a pod's containers.
func (l *Logs) Directory(pod *corev1.Pod) string {
	return filepath.Join(l.root, logFolder(pod.Namespace, pod.Name, string(pod.UID)))
}

// Pods are the pods that there are logs of.
func (l *Logs) Pods() (out []types.UID, err error) {
	folders, err := os.ReadDir(l.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the logs of all pods: %w", err)
	}
	for _, folder := range folders {
		name := folder.Name()
		// NAMESPACE_NAME_UID: none of the three has an underscore.
		if i := strings.LastIndexByte(name, '_'); i >= 0 {
			out = append(out, types.UID(name[i+1:]))
		}
	}
	return out, nil
}

// RemoveAll removes all logs of a pod.
func (l *Logs) RemoveAll(uid types.UID) error {
	found, err := filepath.Glob(filepath.Join(l.root, "*_"+string(uid)))
	if err != nil {
		return fmt.Errorf("find the logs of pod %s: %w", uid, err)
	}
	for _, dir := range found {
		err := os.RemoveAll(dir)
		if err != nil {
			return fmt.Errorf("remove the logs of pod %s: %w", uid, err)
		}
	}
	return nil
}

// Path is where the log of a container is, below the folder of its pod's.
func Path(name string, attempt uint32) string {
	return filepath.Join(name, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// LinkPath is where the container's log is linked for log collectors.
func (l *Logs) LinkPath(pod, namespace, container, id string) string {
	const longest = 251 // with ".log", a file name's limit
	name := pod + "_" + namespace + "_" + container + "-" + id
	return filepath.Join(l.links, name[:min(len(name), longest)]+".log")
}

// Link links the log of a container.
func (l *Logs) Link(pod *corev1.Pod, name, id string, attempt uint32) error {
	if err := os.MkdirAll(l.links, 0o755); err != nil {
		return fmt.Errorf("make the folder of log links: %w", err)
	}
	link := l.LinkPath(pod.Name, pod.Namespace, name, id)
	err := os.Symlink(filepath.Join(l.Directory(pod), Path(name, attempt)), link)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link the log of container %s: %w", name, err)
	}
	return nil
}

// Remove removes a log and those that were rotated. What is not in the folder of logs, or behind a link in it, is not
// this agent's.
func (l *Logs) Remove(path string) error {
	if !strings.HasPrefix(path, l.root+"/") {
		return nil
	}
	folder, err := plainfile.Folder(l.root, filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, plainfile.ErrNotPlain) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	names, err := logsIn(folder, filepath.Base(path))
	if err != nil {
		return err
	}
	for _, name := range append(names, filepath.Base(path)) {
		if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SweepLinks removes links to logs that are no more.
func (l *Logs) SweepLinks() error {
	links, err := os.ReadDir(l.links)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the links to logs: %w", err)
	}
	var errs []error
	for _, entry := range links {
		link := filepath.Join(l.links, entry.Name())
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, l.root+"/") {
			continue // not a link of ours
		}
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove the link of a removed log: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
