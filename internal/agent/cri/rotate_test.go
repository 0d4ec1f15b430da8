package cri

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cri/labels"
	"github.com/everynode/everynode/internal/agent/cri/logs"
)

// logService is a runtime with one running container, whose log it begins again when it is told to.
type logService struct {
	internalapi.RuntimeService
	path string
	fail error
}

func (s *logService) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return []*runtimeapi.Container{{Id: "id", Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: 1},
		Labels: map[string]string{
			labels.PodName: "p", labels.PodNamespace: "ns", labels.PodUID: "u1", labels.ContainerName: "c"}}}, nil
}

func (s *logService) ReopenContainerLog(context.Context, string) error {
	if s.fail != nil {
		return s.fail
	}
	return os.WriteFile(s.path, nil, 0o600)
}

func TestRotate(t *testing.T) {
	r := testRuntime(t)
	dir := filepath.Join(r.cfg.LogRoot, "ns_p_u1", "c")
	service := &logService{path: filepath.Join(dir, "1.log")}
	r.logs = logs.New(service, r.cfg.LogRoot, r.cfg.LinkRoot, 0, 0)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(size int) {
		t.Helper()
		if err := os.WriteFile(service.path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	rotate := func() error {
		now = now.Add(time.Minute)
		return r.logs.RotateAll(t.Context(), now)
	}
	files := func() []string {
		t.Helper()
		names, err := readNames(dir)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	write(10<<20 - 1)
	if err := rotate(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1.log"}, files()); diff != "" {
		t.Errorf("a log that is not full was rotated (-want +got):\n%s", diff)
	}
	for range 7 {
		write(10 << 20)
		if err := rotate(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"1.log", "1.log.20300101-000500.gz", "1.log.20300101-000600.gz", "1.log.20300101-000700.gz",
		"1.log.20300101-000800"}
	if diff := cmp.Diff(want, files()); diff != "" {
		t.Errorf("files after seven rotations (-want +got):\n%s", diff)
	}
	write(10 << 20)
	service.fail = errors.New("gone")
	if err := rotate(); !errors.Is(err, service.fail) {
		t.Errorf("error %v, want the runtime's", err)
	}
	if info, err := os.Stat(service.path); err != nil || info.Size() != 10<<20 {
		t.Errorf("the log is not back under its name after a failure: %v, %v", info, err)
	}
}

// TestRotateAsSet: size and number are what the operator says.
func TestRotateAsSet(t *testing.T) {
	r := testRuntime(t)
	dir := filepath.Join(r.cfg.LogRoot, "ns_p_u1", "c")
	service := &logService{path: filepath.Join(dir, "1.log")}
	r.logs = logs.New(service, r.cfg.LogRoot, r.cfg.LinkRoot, 100, 2)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := os.WriteFile(service.path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.logs.RotateAll(t.Context(), time.Date(2030, 1, 1, 0, i, 0, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
	}
	names, err := readNames(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1.log", "1.log.20300101-000200"}, names); diff != "" {
		t.Errorf("files after three rotations (-want +got):\n%s", diff)
	}
}

// A log that somebody removed, with its folder or without, is begun again: the container would write into a file
// without a name.
func TestLogThatWasRemoved(t *testing.T) {
	r := testRuntime(t)
	dir := filepath.Join(r.cfg.LogRoot, "ns_p_u1", "c")
	r.logs = logs.New(&logService{path: filepath.Join(dir, "1.log")}, r.cfg.LogRoot, r.cfg.LinkRoot, 0, 0)
	look := func() {
		t.Helper()
		if err := r.logs.RotateAll(t.Context(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
			t.Error(err)
		}
		if names, err := readNames(dir); err != nil || len(names) != 1 || names[0] != "1.log" {
			t.Errorf("there is %q (%v), want the log", names, err)
		}
	}
	if err := os.MkdirAll(r.cfg.LogRoot, 0o755); err != nil {
		t.Fatal(err)
	}
	look()
	if err := os.Remove(filepath.Join(dir, "1.log")); err != nil {
		t.Fatal(err)
	}
	look()
	// What is there is left as it is.
	if err := os.WriteFile(filepath.Join(dir, "1.log"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	look()
	if text, err := os.ReadFile(filepath.Join(dir, "1.log")); err != nil || string(text) != "x" {
		t.Errorf("the log is %q (%v)", text, err)
	}
	// Nothing is made behind a link out of the folder of logs.
	other := t.TempDir()
	if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if err := r.logs.RotateAll(t.Context(), time.Now()); err == nil {
		t.Error("a folder that is a link out of the folder of logs was taken")
	}
	if names, err := readNames(other); err != nil || len(names) != 0 {
		t.Errorf("behind the link there is %q (%v)", names, err)
	}
}
