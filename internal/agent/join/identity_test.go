package join

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/everynode/everynode/internal/node/identity"
)

// keyHashes are the keys of the node that signed the requests for client certificates.
func (c *cluster) keyHashes(t *testing.T) (out []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, csr := range c.requests {
		if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
			continue
		}
		hash, err := identity.Verify(csr.Annotations, "n1", csr.Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, hash)
	}
	return out
}

// The node signs its requests with one key, also when it has to join again. A node that joined before nodes had keys makes one
// and has it written down at once.
func TestKeyOfTheNode(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(t)
	if _, err := Join(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	pki := filepath.Join(cfg.DataDir, "pki")
	if err := os.Remove(filepath.Join(pki, clientFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	hashes := c.keyHashes(t)
	if len(hashes) != 2 || hashes[0] == "" || hashes[0] != hashes[1] {
		t.Fatalf("the requests are of the keys %q, want one key twice", hashes)
	}

	if err := os.Remove(filepath.Join(pki, identityFile)); err != nil {
		t.Fatal(err)
	}
	cfg.Token = ""
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- id.Run(ctx) }()
	for deadline := time.Now().Add(time.Minute); len(c.keyHashes(t)) < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the node has a new key and tells nobody")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if hashes = c.keyHashes(t); hashes[2] == "" || hashes[2] == hashes[0] {
		t.Errorf("the requests are of the keys %q, want another one at the end", hashes)
	}
}

func TestReadableKeysAreRefused(t *testing.T) {
	c := newCluster(t)
	for _, name := range []string{clientFile, identityFile} {
		cfg := c.config(t)
		if _, err := Join(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(cfg.DataDir, "pki", name)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Join(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s with mode 0644: %v", name, err)
		}
	}
	cfg := c.config(t)
	if _, err := Join(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.DataDir, "pki", identityFile), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "holds no key") {
		t.Errorf("a key that is none: %v", err)
	}
}
