package entry

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/testenv/needs"
)

// A machine without a network and without DNS: a node that has joined starts, one that has not says what to do.
func TestNodeStartsWithoutANetwork(t *testing.T) {
	inNewNetwork(t, func() {
		for name, c := range map[string]struct{ joined, known bool }{"never joined": {}, "joined": {joined: true},
			"joined, with an address": {true, true}} {
			dir := t.TempDir()
			if c.joined {
				mustWrite(t, filepath.Join(dir, "pki", "client.pem"), "a certificate")
			}
			if c.known {
				mustWrite(t, filepath.Join(dir, addressFile), "10.0.0.7\n")
			}
			for _, server := range []string{"https://10.0.0.1:6443", "https://cp.example.invalid:6443"} {
				cfg, err := config.Config{Node: config.Node{Server: server, NodeName: "n1"},
					Folders: config.Folders{DataDir: dir}}.Complete()
				if err != nil {
					t.Errorf("%s, %s: %v", name, server, err)
					continue
				}
				addresses, err := Addresses(t.Context(), &cfg)
				if err != nil {
					t.Errorf("%s, %s: %v", name, server, err)
					continue
				}
				switch err := FindAddress(t.Context(), cfg.DataDir, addresses); {
				case c.joined && err != nil:
					t.Errorf("%s, %s: it does not start: %v", name, server, err)
				case !c.joined && (err == nil || !strings.Contains(err.Error(), "--node-ip")):
					t.Errorf("%s, %s: got %v, want words that say what to do", name, server, err)
				}
				if got := strings.Join(addresses.Texts(), " "); c.known && got != "10.0.0.7" || !c.known && got != "" {
					t.Errorf("%s, %s: the address is %q", name, server, got)
				}
			}
		}
	})
}

func mustWrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Error(err)
	}
}

// inNewNetwork runs a test in a network namespace in which nothing is connected.
func inNewNetwork(t *testing.T, test func()) {
	t.Helper()
	needs.Root(t, "a network namespace needs root")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("make a network namespace: %v", err)
			return
		}
		test()
	}()
	<-done
}
