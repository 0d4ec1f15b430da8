package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/etcd/offline"
	"github.com/everynode/everynode/internal/storage/etcd/roster"
)

// refused starts a member, which must end with that error, and must change nothing on its disk.
func (c *crowd) refused(m *one, want error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	before := state(c.t, m.dir)
	s, err := Start(ctx, m.options)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, want) || err != nil && strings.Contains(err.Error(), "\n") {
		c.t.Errorf("%s starts with %v, want one line: %v", m.name, err, want)
	}
	if after := state(c.t, m.dir); after != before {
		c.t.Errorf("%s is refused, and the disk, which had\n%snow has\n%s", m.name, before, after)
	}
}

// remove takes a member off the list that does not run.
func (c *crowd) remove(by *one, id string) {
	c.t.Helper()
	c.change("take a member off the list", func() error { return by.Remove(c.t.Context(), id) })
}

// copyOf keeps the disk of a member, which goes on then. putBack puts it in the place of the one
// that is there, and last is the number of its last change.
func (c *crowd) copyOf(m *one) (putBack func(), last uint64) {
	c.t.Helper()
	old := filepath.Join(c.t.TempDir(), "old")
	m.stop()
	must(c.t, os.CopyFS(old, os.DirFS(m.dir)))
	has, err := offline.Check(old)
	must(c.t, err)
	c.start(m)
	return func() {
		c.t.Helper()
		must(c.t, os.RemoveAll(m.dir))
		must(c.t, os.CopyFS(m.dir, os.DirFS(old)))
	}, has.Last
}

// startLater starts a member in the background; what it says is told by the channel, and whom it
// waits for by the other one.
func (c *crowd) startLater(m *one) (ended chan error, waits chan string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	ended, waits = make(chan error, 1), make(chan string, 100)
	logger := funcr.New(func(_, line string) {
		if strings.Contains(line, "majority") {
			waits <- line
		}
	}, funcr.Options{})
	over := make(chan struct{})
	go func() {
		defer close(over)
		s, err := Start(klog.NewContext(ctx, logger), m.options)
		if err == nil {
			m.Server = s
		}
		ended <- err
	}()
	c.t.Cleanup(func() { cancel(); <-over })
	return ended, waits
}

func (c *crowd) soon(what string, ended chan error, want error) {
	c.t.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, want) {
			c.t.Errorf("%s: %v, want %v", what, err, want)
		}
	case <-time.After(time.Minute):
		c.t.Fatalf("%s: nothing", what)
	}
}

// A member that was removed while it was away ends at once, and so does an older copy of its disk.
func TestRemovedMemberWhenOthersAreThere(t *testing.T) {
	t.Parallel()
	c, first, second, third := three(t)
	id := third.Self()
	putBack, _ := c.copyOf(third)
	put(t, first, "more", "1")
	third.stop()
	c.remove(second, id)
	c.refused(third, ErrRemoved)
	putBack()
	c.refused(third, ErrRemoved)

	// It counts in no majority any more: one of the two is needed besides, and told by it alone.
	first.stop()
	c.refused(third, ErrRemoved)
	c.start(first)
	put(t, first, "two", "2")
}

// A member that was removed while it ran knows that by itself, also when nobody else is there.
func TestRemovedMemberWhenNobodyIsThere(t *testing.T) {
	t.Parallel()
	c, first, second, third := three(t)
	c.remove(third, third.Self())
	if err := third.Failed(t.Context()); !errors.Is(err, ErrRemoved) {
		t.Errorf("while it runs it ends with %v", err)
	}
	if _, err := third.spaceFacts(time.Now()); err != nil || third.learns() {
		t.Errorf("what looks after it meanwhile fails: %v", err)
	}
	// A database that ended although nobody says that it was removed is told of as that.
	if err := first.stopped(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("of one that belongs to the cluster it is said: %v", err)
	}
	third.stop()
	first.stop()
	second.stop()
	c.refused(third, ErrRemoved)
	// Nor can it be made the only one, or a backup of it: it would wait for itself for ever.
	if err := Copy(t.Context(), third.dir, t.TempDir(), io.Discard); !errors.Is(err, ErrRemoved) {
		t.Errorf("a copy of it is made: %v", err)
	}
	if err := third.reset(t); !errors.Is(err, ErrRemoved) {
		t.Errorf("it is made the only one: %v", err)
	}
}

// While nobody answers who could know, a member that was removed waits, says for whom, and writes
// nothing; it ends as soon as one does, which needs no majority for that.
func TestRemovedMemberWaitsForOthers(t *testing.T) {
	t.Parallel()
	c, first, second, third := three(t)
	id := third.Self()
	third.stop()
	c.remove(second, id)
	// What the others agreed on is on their disks.
	put(t, first, "after", "1")
	first.stop()
	second.stop()
	before := state(t, third.dir)
	ended, waits := c.startLater(third)
	select {
	case said := <-waits:
		for _, want := range []string{`"first"`, `"second"`, "everynode members reset"} {
			if !strings.Contains(said, want) {
				t.Errorf("it says %q, and not %q", said, want)
			}
		}
	case err := <-ended:
		t.Fatalf("it does not wait: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("it does not say that it waits")
	}
	other, _ := c.startLater(second)
	c.soon("one that could not start itself tells it", ended, ErrRemoved)
	if after := state(t, third.dir); after != before {
		t.Errorf("it has waited, and the disk, which had\n%snow has\n%s", before, after)
	}
	c.start(first)
	c.soon("the others are a majority", other, nil)
	put(t, second, "two", "2")
}

// When a member was made the only one, the others may not come back, however many they are.
func TestMembersOfBeforeAReset(t *testing.T) {
	t.Parallel()
	c, first, second, third := three(t)
	put(t, first, "last", "words")
	for _, m := range c.all {
		m.stop()
	}
	if err := first.reset(t); err != nil {
		t.Fatal(err)
	}
	c.start(first)
	c.refused(second, ErrRemoved)
	c.refused(third, ErrRemoved)
	put(t, first, "new", "life")
}

// awaitMark waits until a member knows that the one with the ID is further than that index.
func awaitMark(t *testing.T, m *one, id string, index uint64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		got, err := m.newClient().KV.Get(t.Context(), offline.WatermarkPrefix+id)
		if err == nil && len(got.Kvs) == 1 {
			if mark, err := strconv.ParseUint(string(got.Kvs[0].Value), 10, 64); err == nil && mark > index {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the member does not write down how far it is")
		}
	}
}

// An old disk is found out by what the others have on theirs, before any of them is a majority.
func TestOldDiskWhenAllStart(t *testing.T) {
	t.Parallel()
	c, first, second, third := three(t)
	putBack, last := c.copyOf(third)
	id := third.Self()
	for n := range 50 {
		put(t, third, fmt.Sprint("more-", n), "x")
	}
	for _, m := range []*one{first, second} {
		awaitMark(t, m, id, last)
	}
	for _, m := range c.all {
		m.stop()
	}
	putBack()
	before := state(t, third.dir)
	ended, _ := c.startLater(third)
	one, _ := c.startLater(first)
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "an old disk or copy was put back") {
			t.Errorf("with an old disk it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a member waits with an old disk")
	}
	if after := state(t, third.dir); after != before {
		t.Errorf("it is refused, and the disk, which had\n%snow has\n%s", before, after)
	}
	c.start(second)
	c.soon("the others are a majority", one, nil)
	wants(t, first, "more-49", "x")
}

// Where the authority of the databases was replaced for good meanwhile, nobody can tell more than that.
func TestAuthorityWasReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	c, first, second, third := three(t)
	third.stop()
	foreign, err := pki.OpenPeers(t.TempDir(), "127.0.0.1", clock.RealClock{})
	must(t, err)
	third.options.Peers.Keys = foreign
	c.refused(third, ErrStranger)
	// One that does not answer at all is no stranger.
	first.stop()
	second.stop()
	ended, waits := c.startLater(third)
	select {
	case <-waits:
	case err := <-ended:
		t.Errorf("when nobody answers it ends with %v", err)
	case <-time.After(time.Minute):
		t.Error("it does not say that it waits")
	}
}

// What a member answers that waits is never what etcd takes for the news that the one who asks is removed.
func TestAnswersBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := &before{has: offline.Data{File: offline.File{Roster: roster.Roster{Members: []roster.Member{{ID: "a"}},
		Gone: []string{"b"}}, Marks: map[string]uint64{"a": 7}}}}
	answer := func(path, from string) (int, string) {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
		r.Header.Set("X-Server-From", from)
		b.handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for path, want := range map[string]string{
		memberPath + "a": standsMember, memberPath + "b": standsRemoved, memberPath + "c": standsUnknown,
		watermarkPath + "a": "7", watermarkPath + "c": "0",
	} {
		if status, text := answer(path, "a"); status != http.StatusOK || text != want {
			t.Errorf("%s: %d %q, want %q", path, status, text, want)
		}
	}
	for _, c := range []struct {
		what, path, from string
		counts           bool
	}{
		{"who asks for keys", string(ClusterKeys), "a", false}, {"one that was removed", "/raft", "b", false},
		{"who does not say who it is", "/raft/probing", "", false}, {"a member", "/raft", "a", true},
	} {
		if status, _ := answer(c.path, c.from); status != http.StatusServiceUnavailable ||
			b.contacted.Load() != c.counts {
			t.Errorf("%s gets %d, and counts as one for whom this is a member: %v", c.what, status, b.contacted.Load())
		}
	}
}
