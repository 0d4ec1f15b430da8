package cri

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// oneContainer is a runtime with one container.
type oneContainer struct {
	internalapi.RuntimeService
	status runtimeapi.ContainerStatus
	reads  int
	// then is the reason that it has from the second time on that it is asked; "" for the one that it had.
	then string
}

func (s *oneContainer) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return nil, nil
}

func (s *oneContainer) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return []*runtimeapi.Container{{Id: s.status.Id, State: s.status.State, Metadata: s.status.Metadata}}, nil
}

func (s *oneContainer) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	s.reads++
	if s.reads > 1 && s.then != "" {
		s.status.Reason = s.then
	}
	return &runtimeapi.ContainerStatusResponse{Status: &s.status}, nil
}

func (s *oneContainer) StartContainer(context.Context, string) error { return nil }

// The runtime may learn why a container ended a moment after that it did.
func TestReasonThatComesLate(t *testing.T) {
	r := testRuntime(t)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	r.now = func() time.Time { return now }
	s := &oneContainer{status: runtimeapi.ContainerStatus{Id: "id", State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 137, Reason: "Error",
		FinishedAt: now.UnixNano(), Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}}
	r.service = s
	look := func() string {
		t.Helper()
		got, err := r.Observe(t.Context(), "u1")
		if err != nil {
			t.Fatal(err)
		}
		return got.Containers[0].Reason
	}
	if got := look(); got != "Error" {
		t.Errorf("the reason is %q", got)
	}
	now = now.Add(time.Second)
	s.status.Reason = "OOMKilled"
	if got := look(); got != "OOMKilled" {
		t.Errorf("the reason is %q after the runtime learned it", got)
	}
	now = now.Add(time.Minute)
	look()
	before := s.reads
	look()
	if s.reads != before {
		t.Error("what cannot change any more was read again")
	}
}

// Of a pod that ends with a container that was killed nobody asks again, so the first answer waits for the reason a
// moment. What ended in another way, or long ago, is asked about once.
func TestAKilledContainerIsAskedAboutTwice(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		code   int32
		reason string
		since  time.Duration
		want   string
		reads  int
	}{
		"killed just now":             {137, "Error", 0, "OOMKilled", 2},
		"killed, and why is known":    {137, "OOMKilled", 0, "OOMKilled", 1},
		"killed, and seen late":       {137, "Error", time.Second, "OOMKilled", 2},
		"killed a while ago":          {137, "Error", 2 * time.Second, "Error", 1},
		"ended by itself":             {1, "Error", 0, "Error", 1},
		"the clock was set back":      {137, "Error", -time.Hour, "OOMKilled", 2},
		"ended well, for all we know": {0, "Completed", 0, "Completed", 1},
	} {
		r := testRuntime(t)
		r.now = func() time.Time { return now }
		s := &oneContainer{then: "OOMKilled", status: runtimeapi.ContainerStatus{Id: "id",
			State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: c.code, Reason: c.reason,
			FinishedAt: now.Add(-c.since).UnixNano(), Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}}
		r.service = s
		got, err := r.Observe(t.Context(), "u1")
		if err != nil {
			t.Fatal(err)
		}
		if is := got.Containers[0].Reason; is != c.want || s.reads != c.reads {
			t.Errorf("%s: the reason is %q after %d reads, want %q after %d", name, is, s.reads, c.want, c.reads)
		}
	}
}

func TestUserAndStopSignalOfAContainer(t *testing.T) {
	r := testRuntime(t)
	s := &oneContainer{status: runtimeapi.ContainerStatus{Id: "id", State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, StopSignal: runtimeapi.Signal_SIGNAL_SIGUSR1,
		User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 5, Gid: 6, SupplementalGroups: []int64{6, 7}}}}}
	r.service = s
	got, err := r.Observe(t.Context(), "u1")
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 5, GID: 6, SupplementalGroups: []int64{6, 7}}}
	if diff := cmp.Diff(want, got.Containers[0].User); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}
	if signal := got.Containers[0].StopSignal; signal == nil || *signal != corev1.SIGUSR1 {
		t.Errorf("stop signal %v, want SIGUSR1", signal)
	}
	// Runtimes of before say nothing of them.
	r = testRuntime(t)
	s.status.User, s.status.StopSignal = nil, runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	r.service = s
	if got, err = r.Observe(t.Context(), "u1"); err != nil || got.Containers[0].User != nil || got.Containers[0].StopSignal != nil {
		t.Errorf("without word of the runtime: %+v, %v", got, err)
	}
}

// A container that runs has started, whether or not its log can be linked for collectors.
func TestLogThatCannotBeLinked(t *testing.T) {
	r := testRuntime(t)
	r.service = &oneContainer{}
	if err := os.MkdirAll(filepath.Dir(r.cfg.LinkRoot), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.cfg.LinkRoot, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), testPod(), "c", "id", 0); err != nil {
		t.Errorf("the start is said to have failed: %v", err)
	}
}

// What a container was made with as image volumes is known again by an agent that has started after it.
func TestVolumeImagesOfAContainer(t *testing.T) {
	want := map[string]string{"rules": "example.com/rules@sha256:1"}
	for _, images := range []map[string]string{want, nil} {
		r, pod := testRuntime(t), testPod()
		config, err := r.containerConfig(&ContainerSpec{Pod: pod, Container: &pod.Spec.Containers[0], VolumeImages: images})
		if err != nil {
			t.Fatal(err)
		}
		r.service = &oneContainer{status: runtimeapi.ContainerStatus{Id: "id", State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Metadata: config.Metadata, Annotations: config.Annotations}}
		got, err := r.Observe(t.Context(), "u1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(images, got.Containers[0].VolumeImages); diff != "" {
			t.Errorf("images of volumes (-want +got):\n%s", diff)
		}
	}
}
