package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// peersAt are two servers that were started with the same authority.
func peersAt(t *testing.T) (first, second string) {
	t.Helper()
	first, second = filepath.Join(t.TempDir(), "peers"), filepath.Join(t.TempDir(), "peers")
	reopen(t, first)
	files, err := ExportPeers(first)
	if err == nil {
		err = importFiles(second, sharedPeerFiles, files)
	}
	if err != nil {
		t.Fatal(err)
	}
	reopen(t, second)
	return first, second
}

// now is when these tests play: handshakes go by the real clock.
var now = clocktesting.NewFakePassiveClock(time.Now())

func reopen(t *testing.T, dir string) *Peers {
	t.Helper()
	p, err := OpenPeers(dir, "127.0.0.1", now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// connect has a client of one server connect to another.
func connect(client *tls.Config, to *Peers) error {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	deadline := time.Now().Add(10 * time.Second)
	_, _ = a.SetDeadline(deadline), b.SetDeadline(deadline)
	served := make(chan error, 1)
	go func() {
		s := tls.Server(b, to.ServerTLS())
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("."))
		}
		served <- err
	}()
	client = client.Clone()
	client.ServerName = "127.0.0.1"
	c := tls.Client(a, client)
	err := c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1)) // with TLS 1.3 the server looks at the client after that
	}
	a.Close()
	return errors.Join(err, <-served)
}

func clientTLS(t *testing.T, p *Peers) *tls.Config {
	t.Helper()
	config, err := p.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// agree reports whether two servers take each other, as they start now and as their databases do
// that have run since before.
func agree(t *testing.T, when string, first, second *Peers, before ...*x509.CertPool) {
	t.Helper()
	for _, pair := range [][2]*Peers{{first, second}, {second, first}} {
		config := clientTLS(t, pair[0])
		if err := connect(config, pair[1]); err != nil {
			t.Errorf("%s: %s does not reach %s: %v", when, pair[0].dir, pair[1].dir, err)
		}
		for _, pool := range before {
			old := config.Clone()
			old.RootCAs = pool
			if err := connect(old, pair[1]); err != nil {
				t.Errorf("%s: the database of %s, which has run since before, does not reach %s: %v", when, pair[0].dir, pair[1].dir, err)
			}
		}
	}
}

func take(t *testing.T, from, to string) {
	t.Helper()
	files, err := ExportPeers(from)
	if err == nil {
		err = AdoptPeers(to, "127.0.0.1", files, now)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// While the authority of the databases is replaced all go on; who has the old one is refused at the end.
func TestPeerAuthorityIsReplaced(t *testing.T) {
	firstDir, secondDir := peersAt(t)
	first, second := reopen(t, firstDir), reopen(t, secondDir)
	stolenDir := filepath.Join(t.TempDir(), "peers")
	if err := os.CopyFS(stolenDir, os.DirFS(secondDir)); err != nil {
		t.Fatal(err)
	}
	private(t, stolenDir)
	stolen := reopen(t, stolenDir)
	before := clientTLS(t, first).RootCAs
	agree(t, "at first", first, second)
	if err := FinishPeers(firstDir, now.Now()); err == nil || !strings.Contains(err.Error(), "nothing to finish") {
		t.Errorf("an end without a beginning: %v", err)
	}
	if err := RotatePeers(firstDir, now.Now()); err != nil {
		t.Fatal(err)
	}
	agree(t, "one has a new authority", first, second, before)
	if err := RotatePeers(firstDir, now.Now()); err == nil || !strings.Contains(err.Error(), "--finish") {
		t.Errorf("a replacement within another: %v", err)
	}
	take(t, firstDir, secondDir)
	agree(t, "both have", first, second, before)
	agree(t, "both have, and one has begun again", reopen(t, firstDir), second, before)
	for _, p := range []*Peers{first, second} {
		hash, err := AuthorityHash(firstDir, PeerAuthority)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := p.Standing(); err != nil || s.Authority != hash || s.Outdated || !s.Replacing {
			t.Errorf("while it is replaced: %+v, %v", s, err)
		}
	}
	if err := connect(clientTLS(t, stolen), first); err != nil {
		t.Errorf("the old one is trusted no more before the end: %v", err)
	}

	if err := FinishPeers(firstDir, now.Now()); err != nil {
		t.Fatal(err)
	}
	agree(t, "one has ended the trust", first, second, before)
	take(t, firstDir, secondDir)
	agree(t, "both have ended it", first, second, before)
	again := []*Peers{reopen(t, firstDir), reopen(t, secondDir)}
	agree(t, "and begun again", again[0], again[1], before)
	agree(t, "one of them", again[0], second)
	for i, p := range []*Peers{first, second, again[0], again[1]} {
		if s, err := p.Standing(); err != nil || s.Replacing || s.Outdated != (i < 2) {
			t.Errorf("after the end %d: %+v, %v", i, s, err)
		}
	}
	for _, p := range []*Peers{first, second} {
		if connect(clientTLS(t, stolen), p) == nil {
			t.Errorf("%s takes a certificate of the old authority", p.dir)
		}
		if connect(clientTLS(t, p), stolen) == nil {
			t.Errorf("%s connects to who has one", p.dir)
		}
	}
	// Its key is stolen, too.
	if err := os.Remove(filepath.Join(stolenDir, peerLeaf+".crt")); err != nil {
		t.Fatal(err)
	}
	if forged := reopen(t, stolenDir); connect(clientTLS(t, forged), first) == nil || connect(clientTLS(t, first), forged) == nil {
		t.Error("what is made with the key of the old authority is taken")
	}
	for _, file := range []string{"ca", "cert", "key"} {
		ca, cert, key := again[0].Files()
		path := map[string]string{"ca": ca, "cert": cert, "key": key}[file]
		if strings.Contains(read(t, path), read(t, filepath.Join(stolenDir, PeerAuthority+".crt"))) {
			t.Errorf("the database is given the old authority in %s", path)
		}
	}
	if err := RotatePeers(firstDir, now.Now()); err != nil {
		t.Errorf("the next replacement: %v", err)
	}
	take(t, firstDir, secondDir)
	agree(t, "at the next replacement", first, second)
	if err := RotatePeers(t.TempDir(), now.Now()); !errors.Is(err, errNoPeers) {
		t.Errorf("a server that is alone: %v", err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// private makes copied keys ones that nobody else reads.
func private(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Chmod(filepath.Join(dir, e.Name()), keyfile.Mode); err != nil {
			t.Fatal(err)
		}
	}
}

// A kill may fall between any two steps, where it is replaced and where it is taken.
func TestPeerReplacementCanBeInterruptedAnywhere(t *testing.T) {
	for cut := 0; ; cut++ {
		firstDir, secondDir := peersAt(t)
		a, err := loadPeers(firstDir, now.Now())
		if err != nil {
			t.Fatal(err)
		}
		steps, err := planPeers(a, now.Now())
		if err != nil {
			t.Fatal(err)
		}
		if cut > len(steps) {
			break
		}
		if err := applyAll(firstDir, steps[:cut]); err != nil {
			t.Fatal(err)
		}
		when := fmt.Sprintf("cut off after %d steps", cut)
		if _, err := InspectPeers(firstDir); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		agree(t, when, reopen(t, firstDir), reopen(t, secondDir))
		if err := RotatePeers(firstDir, now.Now()); err != nil && !strings.Contains(err.Error(), "being replaced already") {
			t.Errorf("%s: the command again: %v", when, err)
		}
		agree(t, when+", and the command again", reopen(t, firstDir), reopen(t, secondDir))
		takeInPieces(t, when, firstDir, secondDir)
		if err := FinishPeers(firstDir, now.Now()); err != nil {
			t.Errorf("%s: the end: %v", when, err)
		}
		takeInPieces(t, when+", ended", firstDir, secondDir)
		agree(t, when+", ended by both", reopen(t, firstDir), reopen(t, secondDir))
		if left, _ := filepath.Glob(filepath.Join(secondDir, "*-next.*")); len(left) > 0 || exists(secondDir, PeerAuthority+"-previous.crt") {
			t.Errorf("%s: there is left %v, and the old one is trusted: %v", when, left, exists(secondDir, PeerAuthority+"-previous.crt"))
		}
	}
}

// takeInPieces has a server take the files of another, and be killed at each step of that.
func takeInPieces(t *testing.T, when, from, to string) {
	t.Helper()
	files, err := ExportPeers(from)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; ; cut++ {
		dir := filepath.Join(t.TempDir(), "peers")
		if err := os.CopyFS(dir, os.DirFS(to)); err != nil {
			t.Fatal(err)
		}
		private(t, dir)
		before, after := peerAdoption(dir, files)
		if cut > len(before)+len(after) {
			break
		}
		if err := applyAll(dir, before[:min(cut, len(before))]); err != nil {
			t.Fatal(err)
		}
		if cut > len(before) {
			reopen(t, dir)
			if err := applyAll(dir, after[:cut-len(before)]); err != nil {
				t.Fatal(err)
			}
		}
		what := fmt.Sprintf("%s: taken up to step %d", when, cut)
		agree(t, what, reopen(t, from), reopen(t, dir))
		take(t, from, dir)
		agree(t, what+", and then all", reopen(t, from), reopen(t, dir))
	}
	take(t, from, to)
}

// One that was away while the authority was replaced for good, and gets the files by hand.
func TestPeerAuthorityIsTakenLate(t *testing.T) {
	firstDir, secondDir := peersAt(t)
	for _, do := range []func(string, time.Time) error{RotatePeers, FinishPeers} {
		if err := do(firstDir, now.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if connect(clientTLS(t, reopen(t, secondDir)), reopen(t, firstDir)) == nil {
		t.Error("one that has not followed is taken")
	}
	take(t, firstDir, secondDir)
	agree(t, "with the files", reopen(t, firstDir), reopen(t, secondDir))
}

// A server whose clock is an hour ahead replaces it: what the others took would end them.
func TestAuthorityOfTheFutureIsNotTaken(t *testing.T) {
	firstDir, secondDir := peersAt(t)
	if err := RotatePeers(firstDir, now.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	files, err := ExportPeers(firstDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := AdoptPeers(secondDir, "127.0.0.1", files, now); err == nil || !strings.Contains(err.Error(), "set the clocks") {
		t.Errorf("an authority of the future: %v", err)
	}
	reopen(t, secondDir)
}

// Who takes the folder away while the server runs brings another; that is not made in between.
func TestFollowingMakesNoAuthority(t *testing.T) {
	dir, _ := peersAt(t)
	if err := os.Remove(filepath.Join(dir, PeerAuthority+".crt")); err != nil {
		t.Fatal(err)
	}
	if err := FollowPeers(dir, "127.0.0.1", now); err != nil {
		t.Fatal(err)
	}
	if exists(dir, PeerAuthority+".crt") {
		t.Error("an authority is made")
	}
}
