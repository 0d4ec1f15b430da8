package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

// thief has the disk of a server that was removed.
type thief struct {
	t     *testing.T
	peers *pki.Peers
}

func steal(t *testing.T, from *machine) thief {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "peers")
	if err := os.CopyFS(dir, os.DirFS(folder.Peers(from.options.DataDir))); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.Chmod(filepath.Join(dir, e.Name()), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	peers, err := pki.OpenPeers(dir, "127.0.0.1", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return thief{t, peers}
}

// ask asks a server's database for something; 0 is the answer of one that does not take who asks.
func (s thief) ask(m *machine, path string) (status int) {
	s.t.Helper()
	secured, err := s.peers.ClientTLS()
	if err != nil {
		s.t.Fatal(err)
	}
	secured.InsecureSkipVerify = true
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: secured, DisableKeepAlives: true}}
	response, err := client.Get("https://" + m.options.PeerAddress + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// poses reports whether a server would connect to who has the disk.
func (s thief) poses(m *machine) bool {
	s.t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", s.peers.ServerTLS())
	if err != nil {
		s.t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	peers, err := m.now().servers.Peers()
	if err != nil {
		s.t.Fatal(err)
	}
	secured, err := peers.Keys.ClientTLS()
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", listener.Addr().String(), secured)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// One that replaces the authority and is lost before any other has taken it leaves nothing for
// which the others wait for ever.
func TestKeysOfALostServerAreGivenUp(t *testing.T) {
	t.Parallel()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	first, second := newMachine(t, 11, port), newMachine(t, 12, port)
	first.start()
	second.join(first, first.token(true))
	agreed := func() (hash string, revision int64) {
		t.Helper()
		first.eventually("what all are to have", func(ctx context.Context) (err error) {
			hash, revision, err = first.now().etcd.Agreed(ctx, etcd.PeerKeys)
			if err == nil && hash == "" {
				err = errors.New("nobody has told")
			}
			return err
		})
		return hash, revision
	}
	before, revision := agreed()
	if done, err := first.now().etcd.Agree(t.Context(), etcd.PeerKeys, "of one that is lost", revision); err != nil || !done {
		t.Fatal(done, err)
	}
	if err := first.now().servers.PeerKeys().Look(t.Context()); !errors.Is(err, etcd.ErrNobodyHas) {
		t.Errorf("nobody has what all are to have: %v", err)
	}
	if now, _ := agreed(); now != "of one that is lost" {
		t.Errorf("it is given up at once for %s", now)
	}
	first.eventually("it is given up", func(context.Context) error {
		if now, _ := agreed(); now != before {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
	// And a replacement works again.
	if err := pki.RotatePeers(folder.Peers(second.options.DataDir), time.Now()); err != nil {
		t.Fatal(err)
	}
	first.eventually("the other has the next one", func(context.Context) error {
		here, errHere := sharedkeys.ExportPeers(first.options.DataDir)
		there, err := sharedkeys.ExportPeers(second.options.DataDir)
		if err = errors.Join(err, errHere); err == nil && !bytes.Equal(here, there) {
			err = errors.New("it has another")
		}
		return err
	})
}

const statusOfPeers = "/everynode/status"

// A server that was removed has a certificate by which the databases know each other, and the key
// of their authority. The others replace that while they run, and one that joins meanwhile has the
// new one; who has the disk of the removed one is refused.
func TestAuthorityOfDatabasesIsReplaced(t *testing.T) {
	t.Parallel()
	all := threeServers(t)
	first, second, lost := all[0], all[1], all[2]
	stolen := steal(t, lost)
	for _, which := range []etcd.Shared{etcd.ClusterKeys, etcd.PeerKeys} {
		if err := second.now().etcd.AskShared(t.Context(), which, func(content []byte) (bool, error) { return len(content) > 0, nil }); err != nil {
			t.Errorf("a server is not given %s: %v", which, err)
		}
	}
	lost.stop()
	first.eventually("the third is removed", func(ctx context.Context) error { return first.now().servers.Remove(ctx, lost.options.Name) })
	// It is known to the databases, and gets no keys.
	if got := stolen.ask(first, statusOfPeers); got != http.StatusOK {
		t.Errorf("before the authority is replaced: %d", got)
	}
	for _, path := range []etcd.Shared{etcd.ClusterKeys, etcd.PeerKeys} {
		if got := stolen.ask(first, string(path)); got != http.StatusForbidden {
			t.Errorf("who is a server no more asks for %s and gets %d", path, got)
		}
	}

	dir := folder.Peers(first.options.DataDir)
	if err := pki.RotatePeers(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	hash, err := pki.AuthorityHash(dir, pki.PeerAuthority)
	if err != nil {
		t.Fatal(err)
	}
	standing := func(what string, replacing bool, of ...*machine) {
		t.Helper()
		first.eventually(what, func(context.Context) error {
			list := first.list()
			if len(list.Servers) != len(of) {
				return fmt.Errorf("there are %d servers", len(list.Servers))
			}
			for _, s := range list.Servers {
				if s.Problem != "" || s.Authority != hash || s.Replacing != replacing || s.Outdated {
					return fmt.Errorf("%s: %q, %+v", s.Name, s.Problem, s.PeerStanding)
				}
			}
			return nil
		})
	}
	standing("both have the new authority", true, first, second)
	written(t, "replacing", second, first, second)
	fourth := newMachine(t, 4, first.options.Port())
	fourth.join(second, second.token(true))
	standing("so has one that joins", true, first, second, fourth)
	if got := stolen.ask(first, string(etcd.PeerKeys)); got != http.StatusForbidden {
		t.Errorf("who is a server no more asks for the new authority and gets %d", got)
	}

	began := map[*machine]*Server{}
	for _, m := range []*machine{first, second, fourth} {
		began[m] = m.now()
	}
	if err := pki.FinishPeers(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*machine{first, second, fourth} {
		m.eventually(m.options.Name+" has begun again", func(context.Context) error {
			if m.now() == began[m] {
				return errors.New("it is the one of before")
			}
			return nil
		})
	}
	standing("nobody goes by the old one", false, first, second, fourth)
	written(t, "replaced", fourth, first, second, fourth)
	for _, m := range []*machine{first, second, fourth} {
		if got := stolen.ask(m, statusOfPeers); got != 0 {
			t.Errorf("%s answers %d to who has the disk of a server that was removed", m.options.Name, got)
		}
		if stolen.poses(m) {
			t.Errorf("%s takes him for a server", m.options.Name)
		}
		keys, err := sharedkeys.ExportPeers(m.options.DataDir)
		if here, errHere := sharedkeys.ExportPeers(first.options.DataDir); err != nil || errHere != nil || !bytes.Equal(keys, here) {
			t.Errorf("%s has another authority than %s: %v", m.options.Name, first.options.Name, errors.Join(err, errHere))
		}
	}
}
