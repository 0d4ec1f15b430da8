package pki

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// A server that joins is the same as the others to whoever trusts one of them.
func TestSharedKeys(t *testing.T) {
	dir, joined, peers := t.TempDir(), t.TempDir(), t.TempDir()
	first := load(t, dir, start)
	keys, err := ExportShared(dir, peers)
	if err != nil {
		t.Fatal(err)
	}
	if err := keys.Import(joined, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	second := load(t, joined, start)
	for name, of := range map[string]func(*Bundle) []byte{"cluster": (*Bundle).CAPEM, "nodes": (*Bundle).NodeCAPEM, "front proxy": (*Bundle).FrontProxyCAPEM} {
		if !bytes.Equal(of(first), of(second)) {
			t.Errorf("the authority of the %s is another", name)
		}
	}
	if !first.ServiceAccountKey().Equal(second.ServiceAccountKey()) {
		t.Error("the key of service accounts is another")
	}
}

// Who joins a second time does not trust what was replaced for good between.
func TestImportForgetsWhatIsNotTrustedAnyMore(t *testing.T) {
	dir, joined, peers := t.TempDir(), t.TempDir(), t.TempDir()
	load(t, dir, start)
	share := func() {
		t.Helper()
		keys, err := ExportShared(dir, peers)
		if err == nil {
			err = keys.Import(joined, peers)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, which := range []string{ClusterAuthority, NodeAuthority, ServiceAccounts} {
		if err := Rotate(dir, which, start); err != nil {
			t.Fatal(err)
		}
	}
	share()
	for _, which := range []string{ClusterAuthority, NodeAuthority, ServiceAccounts} {
		if err := Finish(dir, which, start); err != nil {
			t.Fatal(err)
		}
	}
	share()
	b, err := LoadOrCreate(joined, Options{Clock: clocktesting.NewFakePassiveClock(start.Add(time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(b.state.Load().cluster.roots()) + len(b.state.Load().nodes.roots()); n != 2 || len(b.ServiceAccountKeys()) != 1 {
		t.Errorf("%d authorities and %d keys of service accounts are trusted, want 2 and 1; left: %v", n, len(b.ServiceAccountKeys()), glob(t, joined))
	}
}

func glob(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*previous*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A server that runs for years is still known to the others.
func TestPeersCertificateIsRenewedWhileItRuns(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(start)
	peers, err := OpenPeers(dir, "127.0.0.1", clock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { KeepPeers(ctx, dir, "127.0.0.1", clock); close(ended) }()
	defer func() { cancel(); <-ended }()
	_, certFile, _ := peers.Files()
	for clock.Since(start) < 3*leafLifetime {
		for !clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clock.Step(60 * 24 * time.Hour)
		good := func() bool {
			cert, err := keyfile.ReadCertificate(certFile)
			return err == nil && cert != nil && cert.NotAfter.After(clock.Now().Add(24*time.Hour))
		}
		for deadline := time.Now().Add(10 * time.Second); !good(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after %v the certificate has ended", clock.Since(start))
			}
		}
	}
}
