package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"
)

// Limits of a termination message, as the API has them.
const (
	maxMessageBytes    = 4096
	maxMessageLogBytes = 2048
	maxMessageLogLines = 80
)

// linkPath is where the container's log is linked for log collectors.
func (r *Runtime) linkPath(pod, namespace, container, id string) string {
	const longest = 251 // with ".log", a file name's limit
	name := pod + "_" + namespace + "_" + container + "-" + id
	return filepath.Join(r.cfg.LinkRoot, name[:min(len(name), longest)]+".log")
}

func (r *Runtime) linkLog(pod *corev1.Pod, name, id string, attempt uint32) error {
	if err := os.MkdirAll(r.cfg.LinkRoot, 0o755); err != nil {
		return fmt.Errorf("make the folder of log links: %w", err)
	}
	link := r.linkPath(pod.Name, pod.Namespace, name, id)
	err := os.Symlink(filepath.Join(r.LogDirectory(pod), logPath(name, attempt)), link)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link the log of container %s: %w", name, err)
	}
	return nil
}

// messageMount is the node's file into which the container writes its last words, empty if none.
func messageMount(st *runtimeapi.ContainerStatus) string {
	path := st.Annotations[annotationMessagePath]
	if path == "" {
		return ""
	}
	for _, m := range st.Mounts {
		if m.ContainerPath == path {
			return m.HostPath
		}
	}
	return ""
}

// terminationMessage is what the container said last: in its message file or, if it wishes so and failed, in its log.
func terminationMessage(st *runtimeapi.ContainerStatus) string {
	message := ""
	if path := messageMount(st); path != "" {
		message = readTail(path, maxMessageBytes)
	}
	policy := st.Annotations[annotationMessagePolicy]
	if message == "" && st.ExitCode != 0 && policy == string(corev1.TerminationMessageFallbackToLogsOnError) {
		message = logTail(st)
	}
	return message
}

func readTail(path string, limit int64) string {
	f, err := os.Open(path)
	if err != nil {
		return "Error on reading termination log " + path + ": " + err.Error()
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "Error on reading termination log " + path + ": " + err.Error()
	}
	n := min(info.Size(), limit)
	buf := make([]byte, n)
	if _, err := f.ReadAt(buf, info.Size()-n); err != nil {
		return "Error on reading termination log " + path + ": " + err.Error()
	}
	return strings.ToValidUTF8(string(buf), "\uFFFD")
}

func logTail(st *runtimeapi.ContainerStatus) string {
	lines := int64(maxMessageLogLines)
	var out strings.Builder
	err := crilogs.ReadLogs(context.Background(), st.LogPath, st.Id, &crilogs.LogOptions{TailLines: &lines}, nil, &out, &out)
	if err != nil {
		return "Error reading container logs: " + err.Error()
	}
	text := out.String()
	if len(text) > maxMessageLogBytes {
		text = text[len(text)-maxMessageLogBytes:]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// LogPath is the file into which the runtime writes the container's output.
func (r *Runtime) LogPath(pod *corev1.Pod, name string, attempt uint32) string {
	return filepath.Join(r.LogDirectory(pod), logPath(name, attempt))
}
