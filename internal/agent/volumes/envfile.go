package volumes

import (
	"fmt"
	"io"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/env"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/untrusted/plainfile"
)

// File reads a file of an emptyDir of the pod, env.MaxFile bytes at most. Containers write there, so it has to be a
// regular file and no link leads to it.
func (m *Manager) File(pod *corev1.Pod, name, path string) ([]byte, error) {
	if err := checkUID(pod.UID); err != nil {
		return nil, err
	}
	volume := podfacts.Volume(&pod.Spec, name)
	if volume == nil || volume.EmptyDir == nil {
		return nil, fmt.Errorf("the pod has no emptyDir %q", name)
	}
	root := m.path(pod, volume)
	f, err := plainfile.Open(root, filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, env.MaxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > env.MaxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, env.MaxFile)
	}
	return text, nil
}
