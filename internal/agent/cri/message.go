package cri

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cri/labels"
	"github.com/everynode/everynode/internal/agent/streaming/containerlog"
	"github.com/everynode/everynode/internal/untrusted/plainfile"
)

// Limits of a termination message, as the API has them.
const (
	maxMessageBytes    = 4096
	maxMessageLogBytes = 2048
	maxMessageLogLines = 80
)

// messages are the last words of containers.
type messages struct {
	// pods is the folder of the pods' own files, logs that of the logs of all pods.
	pods, logs string
}

// path is the node's file into which the container writes its last words. It is this package's own: what a pod
// mounts at the same path lies below it, and is none of the agent's business.
func (m messages) path(uid types.UID, container string, attempt uint32) string {
	return filepath.Join(m.pods, string(uid), "containers", container, strconv.FormatUint(uint64(attempt), 10))
}

// last is what the container said last: in its message file or, if it wishes so and failed, in its log.
func (m messages) last(st *runtimeapi.ContainerStatus) string {
	message := ""
	if st.Annotations[labels.MessagePathAnnotation] != "" {
		path := m.path(types.UID(st.Labels[labels.PodUID]), st.Labels[labels.ContainerName],
			st.GetMetadata().GetAttempt())
		var err error
		if message, err = readTail(m.pods, path, maxMessageBytes); err != nil {
			message = "Error on reading termination log " + path + ": " + err.Error()
		}
	}
	policy := st.Annotations[labels.MessagePolicy]
	if message == "" && st.ExitCode != 0 && policy == string(corev1.TerminationMessageFallbackToLogsOnError) {
		message = m.logTail(st)
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

func (m messages) logTail(st *runtimeapi.ContainerStatus) string {
	lines := int64(maxMessageLogLines)
	out := &lastBytes{limit: maxMessageLogBytes}
	err := containerlog.Read(context.Background(), m.logs, st.LogPath, containerlog.Options{Tail: &lines}, out,
		out)
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
