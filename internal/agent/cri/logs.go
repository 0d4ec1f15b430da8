package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/streaming/containerlog"
	"github.com/everynode/everynode/internal/plainfile"
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

// messagePath is the node's file into which the container writes its last words. It is this package's own: what a pod
// mounts at the same path lies below it, and is none of the agent's business.
func (r *Runtime) messagePath(uid types.UID, container string, attempt uint32) string {
	return filepath.Join(r.podDir(uid), "containers", container, strconv.FormatUint(uint64(attempt), 10))
}

// terminationMessage is what the container said last: in its message file or, if it wishes so and failed, in its log.
func (r *Runtime) terminationMessage(st *runtimeapi.ContainerStatus) string {
	message := ""
	if st.Annotations[annotationMessagePath] != "" {
		path := r.messagePath(types.UID(st.Labels[labelPodUID]), st.Labels[labelContainerName], st.GetMetadata().GetAttempt())
		var err error
		if message, err = readTail(r.cfg.PodsRoot, path, maxMessageBytes); err != nil {
			message = "Error on reading termination log " + path + ": " + err.Error()
		}
	}
	policy := st.Annotations[annotationMessagePolicy]
	if message == "" && st.ExitCode != 0 && policy == string(corev1.TerminationMessageFallbackToLogsOnError) {
		message = r.logTail(st)
	}
	return message
}

// readTail reads the end of a file that a container wrote.
func readTail(root, path string, limit int64) (string, error) {
	f, err := plainfile.Open(root, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	n := min(info.Size(), limit)
	buf := make([]byte, n)
	// Somebody may cut it short meanwhile.
	got, err := f.ReadAt(buf, info.Size()-n)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.ToValidUTF8(string(buf[:got]), "\uFFFD"), nil
}

func (r *Runtime) logTail(st *runtimeapi.ContainerStatus) string {
	lines := int64(maxMessageLogLines)
	out := &lastBytes{limit: maxMessageLogBytes}
	err := containerlog.Read(context.Background(), r.cfg.LogRoot, st.LogPath, containerlog.Options{Tail: &lines}, out, out)
	if err != nil {
		return "Error reading container logs: " + err.Error()
	}
	return strings.ToValidUTF8(string(out.kept), "\uFFFD")
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	limit int
	kept  []byte
}

// Write implements io.Writer.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	if over := len(l.kept) - l.limit; over > 0 {
		l.kept = append(l.kept[:0], l.kept[over:]...)
	}
	return len(p), nil
}
