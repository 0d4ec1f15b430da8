package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

// crowd is several members in the test's process.
type crowd struct {
	t      *testing.T
	shared string // holds the authority
	all    []*one
}

type one struct {
	*Server
	dir, name, address string
	options            Options
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{t: t, shared: t.TempDir()}
	t.Cleanup(func() {
		for _, m := range c.all {
			m.stop()
		}
	})
	return c
}

func (m *one) stop() {
	if m.Server != nil {
		m.Close()
		m.Server = nil
	}
}

// reset makes a member that does not run the only one.
func (m *one) reset(t *testing.T) error {
	t.Helper()
	made := filepath.Join(t.TempDir(), "made")
	err := Reset(t.Context(), m.dir, t.TempDir(), made, time.Now())
	if err != nil {
		return err
	}
	m.options.Peers.Known = nil
	return errors.Join(os.RemoveAll(m.dir), os.Rename(made, m.dir))
}

// newMember prepares one that has a data folder and an address.
func (c *crowd) newMember(name string) *one {
	c.t.Helper()
	port, err := freeport.Take()
	if err != nil {
		c.t.Fatal(err)
	}
	m := &one{dir: filepath.Join(c.t.TempDir(), "etcd"), name: name, address: fmt.Sprintf("127.0.0.1:%d", port)}
	peersDir := filepath.Join(c.shared, name)
	if len(c.all) > 0 {
		keys, err := pki.ExportShared(c.shared, filepath.Join(c.shared, c.all[0].name))
		if err == nil {
			err = keys.Import(c.t.TempDir(), peersDir)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	keys, err := pki.OpenPeers(peersDir, "127.0.0.1", clock.RealClock{})
	if err != nil {
		c.t.Fatal(err)
	}
	m.options = Options{Dir: m.dir, NoFsync: true,
		Peers: &Peers{Name: name, URL: "https://" + m.address, Listen: m.address, Keys: keys, Version: "v1"}}
	c.all = append(c.all, m)
	return m
}

func (c *crowd) start(m *one) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var err error
	m.Server, err = Start(ctx, m.options)
	if err != nil {
		c.t.Fatalf("start %s: %v", m.name, err)
	}
}

// join has one of the members let another in, and starts that.
func (c *crowd) join(by, m *one) {
	c.t.Helper()
	c.change("let "+m.name+" join", func() error {
		_, err := by.AddLearner(c.t.Context(), m.options.Peers.URL)
		return err
	})
	m.options.Peers.Known = by.Members()
	c.start(m)
}

// change changes who the members are, as soon as they let it.
func (c *crowd) change(what string, do func() error) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNotNow) || time.Now().After(deadline) {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

func put(t *testing.T, m *one, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := m.newClient().KV.Put(ctx, key, value)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("write through %s: %v", m.name, err)
		}
	}
}

func wants(t *testing.T, m *one, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := m.newClient().KV.Get(ctx, key)
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != value {
		t.Errorf("%s has %s = %v, %v; want %q", m.name, key, got, err, value)
	}
}

// three makes a database that was alone the first of three.
func three(t *testing.T) (c *crowd, first, second, third *one) {
	t.Helper()
	c = newCrowd(t)
	first = c.newMember("first")
	alone := first.options
	alone.Peers = nil
	s, err := Start(t.Context(), alone)
	if err != nil {
		t.Fatal(err)
	}
	lone := &one{Server: s, name: "alone"}
	put(t, lone, "before", "1")
	lone.stop()
	c.start(first)
	second, third = c.newMember("second"), c.newMember("third")
	c.join(first, second)
	c.join(second, third)
	return c, first, second, third
}

func TestOneBecomesThree(t *testing.T) {
	c, first, second, third := three(t)
	put(t, third, "three", "3")
	for _, m := range c.all {
		wants(t, m, "before", "1")
		wants(t, m, "three", "3")
	}
	answers := second.Ask(t.Context())
	var names []string
	leaders := 0
	for _, a := range answers {
		if a.Err != nil || a.Status.Learner || a.Status.Version != "v1" || a.Status.Bytes == 0 {
			t.Errorf("%s says %+v, %v", a.Name, a.Status, a.Err)
		}
		if a.Status.Leads {
			leaders++
		}
		names = append(names, a.Status.Name)
	}
	slices.Sort(names)
	if strings.Join(names, " ") != "first second third" || leaders != 1 {
		t.Errorf("the members are %v with %d leaders", names, leaders)
	}

	// Any of them can go and come back, and what the others wrote meanwhile is there.
	for _, m := range c.all {
		m.stop()
		other := c.all[(slices.Index(c.all, m)+1)%3]
		put(t, other, "without", m.name)
		c.start(m)
		wants(t, m, "without", m.name)
	}

	// One that is gone for good is taken off the list, and may not come back.
	gone := first.Self()
	first.stop()
	c.change("take the first off the list", func() error { return second.Remove(t.Context(), gone) })
	put(t, third, "one less", "1")
	if len(third.Members()) > 2 {
		t.Errorf("there are still the members %v", third.Members())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if s, err := Start(ctx, first.options); !errors.Is(err, ErrRemoved) {
		t.Errorf("a removed member starts: %v", err)
		if err == nil {
			s.Close()
		}
	}
	put(t, third, "two", "2")
}

func TestPeersOnlyTalkToPeers(t *testing.T) {
	c := newCrowd(t)
	m := c.newMember("first")
	c.start(m)
	foreign, err := pki.OpenPeers(t.TempDir(), "127.0.0.1", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := foreign.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	for what, certificates := range map[string][]tls.Certificate{"nothing": nil,
		"a certificate of another authority": theirs.Certificates} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: certificates,
			InsecureSkipVerify: true}}}
		for _, path := range []string{statusPath, string(ClusterKeys), string(PeerKeys), "/members", "/raft"} {
			if response, err := client.Get(m.options.Peers.URL + path); err == nil {
				response.Body.Close()
				t.Errorf("who shows %s gets %s from %s", what, response.Status, path)
			}
		}
	}
	if _, err := askPeer(t.Context(), m.options.Peers.Keys, m.options.Peers.URL+statusPath, maxAnswer); err != nil {
		t.Errorf("a peer is refused: %v", err)
	}
	if conn, err := net.Dial("tcp", m.address); err == nil {
		conn.Close()
	}
}

// Who shows no certificate is not kept waiting for: connections are not for strangers.
func TestStrangersHoldNoConnection(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	m := c.newMember("first")
	c.start(m)
	conn, err := net.Dial("tcp", m.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(2 * peerHandshake)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 1)); errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("a connection on which nothing was said is open after %v", 2*peerHandshake)
	}
}

// A server that was let in and never came holds up the others; they are told which it is.
func TestUnfinishedJoinIsNamed(t *testing.T) {
	c := newCrowd(t)
	first := c.newMember("first")
	c.start(first)
	lost, err := first.AddLearner(t.Context(), "https://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = first.AddLearner(t.Context(), "https://127.0.0.1:2")
	if !errors.Is(err, ErrNotNow) || !strings.Contains(err.Error(), "at https://127.0.0.1:1") ||
		!strings.Contains(err.Error(), "everynode members remove "+lost.ID) {
		t.Errorf("the next one is told %v", err)
	}
	if err := first.Remove(t.Context(), lost.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := first.AddLearner(t.Context(), "https://127.0.0.1:2"); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// With a new authority, all go on, and who has a key of before is a stranger.
func TestPeersAuthorityIsReplaced(t *testing.T) {
	c, first, second, third := three(t)
	put(t, first, "before", "2")
	stolen, err := first.options.Peers.Keys.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	stolen.InsecureSkipVerify = true
	ask := func() error {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: stolen, DisableKeepAlives: true}}
		response, err := client.Get(second.options.Peers.URL + statusPath)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.all {
		m.stop()
		if err := os.RemoveAll(filepath.Join(c.shared, m.name)); err != nil {
			t.Fatal(err)
		}
	}
	firstDir := filepath.Join(c.shared, first.name)
	started := make(chan error, len(c.all))
	for _, m := range c.all {
		dir := filepath.Join(c.shared, m.name)
		if m != first {
			keys, err := pki.ExportShared(c.shared, firstDir)
			if err == nil {
				err = keys.Import(t.TempDir(), dir)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		m.options.Peers.Keys, err = pki.OpenPeers(dir, "127.0.0.1", clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var err error
			m.Server, err = Start(ctx, m.options)
			started <- err
		}()
	}
	for range c.all {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range c.all {
		wants(t, m, "before", "2")
	}
	put(t, third, "after", "3")
	wants(t, second, "after", "3")
	if ask() == nil {
		t.Error("who has a key of before is still taken for a server")
	}
}

// A copy of the disk of before would forget what the member has agreed to since.
func TestOldDiskIsRefused(t *testing.T) {
	c, _, second, third := three(t)
	third.stop()
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(third.dir)); err != nil {
		t.Fatal(err)
	}
	c.start(third)
	id := third.Self()
	for n := range 50 {
		put(t, third, fmt.Sprint("more-", n), "x")
	}
	awaitMark(t, second, id, 0)
	third.stop()
	if err := os.RemoveAll(third.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(third.dir, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	before := state(t, third.dir)
	s, err := Start(t.Context(), third.options)
	if err == nil {
		s.Close()
		t.Fatal("a member starts with an old disk")
	}
	if after := state(t, third.dir); after != before {
		t.Errorf("it is refused, and the disk, which had\n%snow has\n%s", before, after)
	}
	if !strings.Contains(err.Error(), "everynode members remove third") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is %v", err)
	}
}

// waitsForAMajority starts one whose others are silent: it says for whom it waits, and what to do.
func waitsForAMajority(t *testing.T, m *one) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	said := ""
	logger := funcr.New(func(_, line string) {
		if strings.Contains(line, "majority") {
			said = line
			cancel()
		}
	}, funcr.Options{})
	if s, err := Start(klog.NewContext(ctx, logger), m.options); err == nil {
		s.Close()
		t.Error("one of three starts alone")
	}
	for _, want := range []string{"Waiting for a majority of the servers", `"second"`, `"third"`,
		"everynode members reset"} {
		if !strings.Contains(said, want) {
			t.Errorf("it says %q, and not %q", said, want)
		}
	}
}

// state is what there is in a folder, and when it was written.
func state(t *testing.T, dir string) (out string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			out += fmt.Sprintln(path, info.Size(), info.ModTime(), info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is left when the majority is lost for good can go on alone, if somebody says so.
func TestMajorityLost(t *testing.T) {
	c, first, second, third := three(t)
	put(t, first, "last", "words")
	second.stop()
	third.stop()
	if err := first.Remove(t.Context(), first.Self()); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a majority a member was removed: %v", err)
	}
	first.stop()
	waitsForAMajority(t, first)
	if err := first.reset(t); err != nil {
		t.Fatal(err)
	}
	c.start(first)
	wants(t, first, "last", "words")
	if got := first.Members(); len(got) != 1 {
		t.Errorf("the members are %v", got)
	}
	put(t, first, "new", "life")
}
