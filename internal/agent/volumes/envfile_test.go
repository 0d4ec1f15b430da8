package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/untrusted/plainfile"
)

// Containers write the files of variables: no link in them leads elsewhere, and no pipe holds up the agent.
func TestFileOfAVolume(t *testing.T) {
	m := New(Config{RootDir: t.TempDir(), Objects: &fakeObjects{}})
	pod := &corev1.Pod{}
	pod.UID, pod.Namespace, pod.Name = "u", "ns", "p"
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	dir := m.volumeDir(pod.UID, "empty-dir", "v")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "d"), 0o700), os.WriteFile(filepath.Join(dir, "d", "f"), []byte("K='v'"), 0o600),
		os.Symlink("/etc/hostname", filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if text, err := m.File(pod, "v", "d/f"); err != nil || string(text) != "K='v'" {
		t.Errorf("read %q, %v", text, err)
	}
	for _, name := range []string{"link", "pipe"} {
		if _, err := m.File(pod, "v", name); !errors.Is(err, plainfile.ErrNotPlain) {
			t.Errorf("%s: %v, want %v", name, err, plainfile.ErrNotPlain)
		}
	}
	if _, err := m.File(pod, "v", "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := m.File(pod, "v", "../../../../outside"); err == nil {
		t.Error("a path led out of the volume")
	}
	if _, err := m.File(pod, "host", "etc/hostname"); err == nil {
		t.Error("a file of a hostPath was read")
	}
}
