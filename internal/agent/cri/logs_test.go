package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cri/labels"
	"github.com/everynode/everynode/internal/agent/cri/logs"
	"github.com/everynode/everynode/internal/untrusted/plainfile"
)

// dead is the status of a container that has ended, with its folders made.
func dead(t *testing.T, r *Runtime, policy corev1.TerminationMessagePolicy, code int32) *runtimeapi.ContainerStatus {
	t.Helper()
	log := filepath.Join(r.cfg.LogRoot, "ns_p_u1", "c", "1.log")
	for _, dir := range []string{filepath.Dir(log), filepath.Dir(r.messages.path("u1", "c", 1)), r.cfg.LinkRoot} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &runtimeapi.ContainerStatus{Id: "id", ExitCode: code, LogPath: log,
		Metadata: &runtimeapi.ContainerMetadata{Name: "c", Attempt: 1},
		Labels: map[string]string{labels.PodName: "p", labels.PodNamespace: "ns", labels.PodUID: "u1",
			labels.ContainerName: "c"},
		Annotations: map[string]string{labels.MessagePathAnnotation: "/m", labels.MessagePolicy: string(policy)},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/m", HostPath: filepath.Join(r.cfg.LogRoot, "foreign")}}}
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTerminationMessage(t *testing.T) {
	r := testRuntime(t)
	failed, ended := dead(t, r, corev1.TerminationMessageFallbackToLogsOnError, 1), dead(t, r,
		corev1.TerminationMessageFallbackToLogsOnError, 0)
	file := r.messages.path("u1", "c", 1)
	writeText(t, file, "")
	writeText(t, failed.LogPath, "2030-01-01T00:00:00.000000000Z stdout F one\n2030-01-01T00:00:01.000000000Z stderr F two\n")
	writeText(t, failed.Mounts[0].HostPath, "what the pod itself mounts there")
	if got := r.messages.last(dead(t, r, corev1.TerminationMessageReadFile, 1)); got != "" {
		t.Errorf("message %q, want none", got)
	}
	if got := r.messages.last(failed); got != "one\ntwo\n" {
		t.Errorf("message %q, want the end of the log", got)
	}
	if got := r.messages.last(ended); got != "" {
		t.Errorf("message %q of a success, want none", got)
	}
	writeText(t, failed.LogPath, "2030-01-01T00:00:00.000000000Z stdout F "+strings.Repeat("x", 100_000)+"end\n")
	if got := r.messages.last(failed); len(got) != maxMessageLogBytes || !strings.HasSuffix(got, "end\n") {
		t.Errorf("message of %d bytes, want the last %d of the log", len(got), maxMessageLogBytes)
	}
	writeText(t, file, strings.Repeat("x", maxMessageBytes)+"end")
	if got := r.messages.last(failed); len(got) != maxMessageBytes || !strings.HasSuffix(got, "end") {
		t.Errorf("message of %d bytes, want the last %d of the file", len(got), maxMessageBytes)
	}
}

// Whatever stands where a message or a log should be: nothing else is read, and nobody waits for it.
func TestLastWordsThatAreNoFiles(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	writeText(t, secret, "2030-01-01T00:00:00.000000000Z stdout F secret\n")
	for what, make := range map[string]func(path string) error{
		"a link":       func(path string) error { return os.Symlink(secret, path) },
		"a named pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a folder":     func(path string) error { return os.Mkdir(path, 0o700) },
		"a linked folder": func(path string) error {
			dir := filepath.Dir(path)
			return errors.Join(os.Remove(dir), os.WriteFile(filepath.Join(filepath.Dir(secret), filepath.Base(path)),
				[]byte("2030-01-01T00:00:00.000000000Z stdout F secret\n"), 0o600),
				os.Symlink(filepath.Dir(secret), dir))
		},
	} {
		for _, where := range []string{"message", "log"} {
			r := testRuntime(t)
			st := dead(t, r, corev1.TerminationMessageFallbackToLogsOnError, 1)
			path := r.messages.path("u1", "c", 1)
			if where == "log" {
				writeText(t, path, "")
				path = st.LogPath
			}
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			said := makeChannel(func() string { return r.messages.last(st) })
			select {
			case got := <-said:
				if !strings.HasPrefix(got, "Error ") || strings.Contains(got, "secret") {
					t.Errorf("%s instead of the %s: message %q", what, where, got)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s instead of the %s: nobody answers", what, where)
			}
		}
	}
}

func makeChannel(f func() string) <-chan string {
	c := make(chan string, 1)
	go func() { c <- f() }()
	return c
}

// gone is a runtime with one dead container, which it removes.
type gone struct {
	internalapi.RuntimeService
	status *runtimeapi.ContainerStatus
}

func (g gone) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: g.status}, nil
}

func (g gone) RemoveContainer(context.Context, string) error { return nil }

// Removing a container removes what the agent made for it, and nothing that the pod mounted or that somebody put in
// the way.
func TestRemovingLeavesWhatIsNotOurs(t *testing.T) {
	r := testRuntime(t)
	st := dead(t, r, corev1.TerminationMessageReadFile, 1)
	r.service = gone{status: st}
	dir := t.TempDir()
	foreign, folder := filepath.Join(dir, "hostpath"), filepath.Join(dir, "folder")
	writeText(t, foreign, "of the host")
	if err := os.MkdirAll(filepath.Join(folder, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeText(t, r.messages.path("u1", "c", 1), "bye")
	writeText(t, st.LogPath, "log")
	writeText(t, st.LogPath+".20300101-000000.gz", "old")
	for _, mounts := range [][]*runtimeapi.Mount{{{ContainerPath: "/m", HostPath: foreign}},
		{{ContainerPath: "/m", HostPath: folder}}} {
		st.Mounts = mounts
		if err := r.RemoveContainer(t.Context(), "id"); err != nil {
			t.Errorf("removing is not possible: %v", err)
		}
	}
	for path, there := range map[string]bool{foreign: true, filepath.Join(folder, "x"): true,
		r.messages.path("u1", "c", 1): false, st.LogPath: false, st.LogPath + ".20300101-000000.gz": false} {
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	// Somebody who can write among the logs leads the agent elsewhere.
	if err := errors.Join(os.Remove(filepath.Dir(st.LogPath)), os.Symlink(dir, filepath.Dir(st.LogPath))); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dir, "1.log"), "of the host")
	if err := r.RemoveContainer(t.Context(), "id"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "1.log")); err != nil {
		t.Errorf("a file behind a link was removed: %v", err)
	}
}

// Rotation follows no links and waits for nobody.
func TestRotationFollowsNoLinks(t *testing.T) {
	big := strings.Repeat("x", 10<<20)
	for what, make := range map[string]func(dir, elsewhere string) error{
		"the log is a link": func(dir, elsewhere string) error {
			return os.Symlink(elsewhere+"/1.log",
				dir+"/1.log")
		},
		"the folder is a link": func(dir, elsewhere string) error {
			return errors.Join(os.Remove(dir),
				os.Symlink(elsewhere, dir))
		},
		"the log is a named pipe": func(dir, _ string) error { return unix.Mkfifo(dir+"/1.log", 0o600) },
		"the old log is a link": func(dir, elsewhere string) error {
			return oldLog(dir,
				os.Symlink(elsewhere+"/1.log", dir+"/1.log.1"))
		},
		"the old log is a pipe": func(dir, _ string) error { return oldLog(dir, unix.Mkfifo(dir+"/1.log.1", 0o600)) },
		"the unfinished is a link": func(dir, elsewhere string) error {
			return oldLog(dir, errors.Join(os.WriteFile(dir+"/1.log.1", nil, 0o600),
				os.Symlink(elsewhere+"/1.log", dir+"/1.log.1.tmp")))
		},
	} {
		r := testRuntime(t)
		dir, elsewhere := filepath.Join(r.cfg.LogRoot, "ns_p_u1", "c"), t.TempDir()
		r.logs = logs.New(&logService{path: dir + "/1.log"}, r.cfg.LogRoot, r.cfg.LinkRoot, 0, 0)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		writeText(t, elsewhere+"/1.log", big)
		if err := make(dir, elsewhere); err != nil {
			t.Fatal(err)
		}
		said := makeChannel(func() string {
			if err := r.logs.RotateAll(t.Context(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil &&
				!errors.Is(err, plainfile.ErrNotPlain) && !errors.Is(err, unix.ENOTDIR) {
				return err.Error()
			}
			return ""
		})
		select {
		case problem := <-said:
			if problem != "" {
				t.Errorf("%s: %s", what, problem)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the rotation hangs", what)
		}
		if names, err := os.ReadDir(elsewhere); err != nil || len(names) != 1 {
			t.Errorf("%s: elsewhere there is %v (%v)", what, names, err)
		}
		if info, err := os.Stat(elsewhere + "/1.log"); err != nil || info.Size() != 10<<20 {
			t.Errorf("%s: the file elsewhere was changed: %v", what, err)
		}
		if copies, err := filepath.Glob(dir + "/*.gz"); err != nil || strings.Contains(what, "old log is") &&
			len(copies) != 0 {
			t.Errorf("%s: copied to %v (%v)", what, copies, err)
		}
	}
}

// oldLog is a log that is to be rotated, besides what was made.
func oldLog(dir string, made error) error {
	return errors.Join(made, os.WriteFile(dir+"/1.log", []byte(strings.Repeat("x", 10<<20)), 0o600))
}

// Whoever can make folders among the logs cannot have other pods' files removed by their names.
func TestSweepTakesUIDsOnly(t *testing.T) {
	r := testRuntime(t)
	for _, dir := range []string{r.cfg.LinkRoot, r.cfg.LogRoot + "/ns_live_u1/c", r.cfg.LogRoot + "/ns_gone_u2",
		r.cfg.LogRoot + "/x_..", r.cfg.LogRoot + "/x_.", r.cfg.LogRoot + "/x_*",
		r.cfg.LogRoot + "/x_?1", r.cfg.PodsRoot + "/u1/containers/c", filepath.Dir(r.cfg.PodsRoot) + "/containers/precious"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Sweep(t.Context(), func(uid types.UID) bool { return uid == "u1" }); err != nil {
		t.Error(err)
	}
	for path, there := range map[string]bool{r.cfg.LogRoot + "/ns_live_u1/c": true,
		r.cfg.LogRoot + "/ns_gone_u2": false, r.cfg.PodsRoot + "/u1/containers/c": true, filepath.Dir(r.cfg.PodsRoot) + "/containers/precious": true} {
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
}
