package join

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

// Whoever empties the folder of a node's identity takes nothing from it: its key, to which its name belongs, its
// certificates and what it trusts are there again. A node that is refused leaves its folder to the operator.
func TestIdentityComesBack(t *testing.T) {
	cfg := newCluster(t).config(t)
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	key, err := id.identityKey()
	if err != nil {
		t.Fatal(err)
	}
	empty := func() {
		t.Helper()
		for _, name := range []string{identityFile, caFile, kubeconfigFile} {
			remove(t, id.store.dir, name)
		}
		truncate(t, id.store.dir, clientFile)
	}
	empty()
	for name, refuse := range map[string]func(bool){"refused": id.refused.Store, "stranger": id.stranger.Store} {
		refuse(true)
		mended, err := id.Mend()
		if err != nil || len(mended) > 0 {
			t.Errorf("%s: it puts %v back, %v", name, mended, err)
		}
		refuse(false)
	}
	if again, err := id.identityKey(); err != nil || !again.Equal(key) {
		t.Errorf("the node has another key now, %v", err)
	}
	mended, err := id.Mend()
	if err != nil || len(mended) != 4 {
		t.Errorf("it puts %v back, %v, want four files", mended, err)
	}
	_, err = os.Stat(filepath.Join(id.store.dir, clientFile+".broken"))
	if err != nil {
		t.Errorf("what was half written is not kept: %v", err)
	}
	cfg.Token = ""
	restarted, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatalf("it does not start any more: %v", err)
	}
	if is := restarted.client.Load().Leaf; !is.Equal(id.client.Load().Leaf) || is.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		t.Errorf("it has the certificate of %v", is.Subject)
	}
	again, err := restarted.identityKey()
	if err != nil || !again.Equal(key) {
		t.Errorf("after a restart it has another key, %v", err)
	}
}
