package local

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/local/layout"
)

func TestLogsAreBounded(t *testing.T) {
	dir := t.TempDir()
	plan := layout.Plan{DataDir: dir}
	logs := []string{SupervisorLog(dir), plan.ServerLog(), plan.ContainerdLog("node-1"), plan.AgentLog("node-1"),
		plan.ContainerdLog("node-2"), plan.AgentLog("node-2")}
	for _, path := range logs {
		put(t, path, "")
		// What pods write there is theirs.
		put(t, filepath.Join(filepath.Dir(path), "pods", "p.log"), "")
	}
	if got := clusterLogs(dir); !reflect.DeepEqual(got, logs) {
		t.Errorf("logs %v, want %v", got, logs)
	}

	path := logs[1]
	writer, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for _, step := range []struct{ writes, now, before string }{
		{"12345", "12345", ""},
		{"67890A", "", "1234567890A"},
		{"b", "b", "1234567890A"},
		{"cdefghijkl", "", "bcdefghijkl"},
		{strings.Repeat("m", 100) + "ABCDEFGHIJKLMNOPQRST", "", "ABCDEFGHIJKLMNOPQRST"},
	} {
		if _, err := writer.WriteString(step.writes); err != nil {
			t.Fatal(err)
		}
		if err := boundLog(path, 10); err != nil {
			t.Fatal(err)
		}
		if now := get(path); now != step.now {
			t.Errorf("after %q the log is %q, want %q", step.writes, now, step.now)
		}
		if before := get(path + oldLog); before != step.before {
			t.Errorf("after %q the old log is %q, want %q", step.writes, before, step.before)
		}
	}
}

// TestLogsOfPodsAreNoTraps has links in the place of logs, which pods with the node's /var/log can make.
func TestLogsOfPodsAreNoTraps(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "precious")
	text := strings.Repeat("x", 100)
	put(t, outside, text)
	path := filepath.Join(t.TempDir(), "log", "containerd.log")
	put(t, path, text)
	if err := os.Symlink(outside, path+oldLog); err != nil {
		t.Fatal(err)
	}
	if err := boundLog(path, 10); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, path); err != nil {
		t.Fatal(err)
	}
	if err := boundLog(path, 10); err != nil {
		t.Error(err)
	}
	if got := get(outside); got != text {
		t.Errorf("a file outside is %q now", got)
	}
	if err := boundLog(path+"-that-is-not-there", 10); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// get is what a file holds, "" without one.
func get(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
