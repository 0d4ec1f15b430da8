package cri

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// All pods together have what the node has for them, by both versions of cgroups, and a bound that is lifted is gone.
func TestBoundOfAllPods(t *testing.T) {
	for name, c := range map[string]struct {
		files      map[string]string
		file, none string
	}{
		"version 1": {map[string]string{"memory/tasks": ""}, "memory/a/n/kubepods/memory.limit_in_bytes", "-1"},
		"version 2": {map[string]string{"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids",
			"a/cgroup.subtree_control": "cpu memory pids", "a/n/cgroup.subtree_control": "cpu pids"}, "a/n/kubepods/memory.max", "max"},
	} {
		mount := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(mount, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		g, file := cgroups{mount: mount, root: "/a/n", weighing: &sync.Mutex{}}, filepath.Join(mount, c.file)
		if err := g.bound(0); err != nil {
			t.Errorf("%s: no bound where there are no pods: %v", name, err)
		}
		err := g.bound(1 << 30)
		if text, _ := os.ReadFile(filepath.Join(mount, "a/n/cgroup.subtree_control")); err != nil || name == "version 2" && string(text) != "+memory" {
			t.Errorf("%s: what is handed down became %q, %v", name, text, err)
		}
		for _, step := range []struct {
			bytes int64
			want  string
		}{{1 << 30, "1073741824"}, {1 << 29, "536870912"}} {
			err := g.bound(step.bytes)
			if text, _ := os.ReadFile(file); err != nil || string(text) != step.want {
				t.Errorf("%s: %d became %q, %v", name, step.bytes, text, err)
			}
		}
		err = g.bound(0)
		if text, _ := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), c.none) {
			t.Errorf("%s: lifted, it is %q, %v", name, text, err)
		}
	}
}
