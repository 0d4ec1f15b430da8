package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/files/datadir"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/server/membership"
	"github.com/everynode/everynode/internal/storage/etcd"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

// endsWith has a server run that must end by itself, with one line that says all of that.
func (m *machine) endsWith(want ...string) {
	m.t.Helper()
	ended := make(chan error, 1)
	go func() {
		s, err := New(m.options)
		if err == nil {
			err = s.Run(m.t.Context())
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		m.says(err, want...)
	case <-time.After(severalPatience):
		m.t.Fatalf("%s does not end", m.options.Name)
	}
}

func (m *machine) says(err error, want ...string) {
	m.t.Helper()
	if err == nil {
		m.t.Errorf("%s has ended without an error", m.options.Name)
		return
	}
	m.t.Logf("everynode: %v", err)
	for _, w := range append(want, m.options.DataDir) {
		if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
			m.t.Errorf("%s ends with %q, want one line with %q", m.options.Name, err, w)
		}
	}
}

// written is what there is in a folder, and when it was written.
func contents(t *testing.T, dir string) (out string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && filepath.Base(path) != "server.lock" {
			out += fmt.Sprintln(path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A server that was removed ends with one line, and writes nothing before that is clear: whether
// it ran meanwhile or not, and also when its folder is put back from a copy. With an empty folder
// it is one again.
func TestRemovedServerEndsInOneLine(t *testing.T) {
	t.Parallel()
	all := threeServers(t)
	first, third := all[0], all[2]
	line := []string{"this server was removed from the cluster", "everynode server --join https://ANOTHER:6443 --token TOKEN", "with an empty folder"}
	third.stop()
	old := filepath.Join(t.TempDir(), "old")
	copyFolder(t, third.options.DataDir, old)
	third.start()
	remove := func() {
		t.Helper()
		first.eventually("the third is removed", func(ctx context.Context) error { return first.now().servers.Remove(ctx, "server-3") })
	}
	remove()
	third.cancel = nil
	third.says(<-third.done, line...)
	third.endsWith(line...) // at once, without asking anybody

	if err := os.RemoveAll(third.options.DataDir); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, old, third.options.DataDir)
	before := contents(t, third.options.DataDir)
	third.endsWith(line...)
	after := contents(t, third.options.DataDir)
	if members := filepath.Join(third.options.DataDir, membership.FileName); without(before, members) != without(after, members) {
		t.Errorf("it is refused, and the folder, which had\n%snow has\n%s", before, after)
	}
	if m, err := membership.Read(third.options.DataDir); err != nil || !m.Removed {
		t.Errorf("what is clear is not kept: %+v, %v", m, err)
	}
	err := membership.Reset(t.Context(), third.options.DataDir, time.Now())
	if err == nil || !strings.Contains(err.Error(), "cannot be made a cluster of its own") {
		t.Errorf("a server that was removed is made the only one: %v", err)
	}

	if err := os.RemoveAll(third.options.DataDir); err != nil {
		t.Fatal(err)
	}
	third.join(first, first.token(true))
	written(t, "again", third, all...)
}

// copyFolder copies it with all modes.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func without(lines, beginning string) (out string) {
	for line := range strings.Lines(lines) {
		if !strings.HasPrefix(line, beginning) {
			out += line
		}
	}
	return out
}

// What a database says of a server that may not take part becomes one line that says what to do.
func TestLinesOfServersThatMayNotTakePart(t *testing.T) {
	dir := t.TempDir()
	m := &membership.File{Name: "b", URL: "https://127.0.0.1:2380"}
	stranger := m.Refused(dir, fmt.Errorf("%w (a)", etcd.ErrStranger))
	for _, want := range []string{"of another authority", "(a)", "everynode members remove b", "move " + dir + " away", "--join"} {
		if !strings.Contains(stranger.Error(), want) || strings.Contains(stranger.Error(), "\n") {
			t.Errorf("it says %q, and not %q", stranger, want)
		}
	}
	if folder.Exists(filepath.Join(dir, membership.FileName)) {
		t.Error("what may change is written down for good")
	}
	if other := errors.New("other"); !errors.Is(m.Refused(dir, other), other) {
		t.Error("another error is not told")
	}
}

// A server whose program is too old, or too new, is told so at the first contact: nothing is written, here or there.
func TestTooOldToJoin(t *testing.T) {
	t.Parallel()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	first, joiner := newMachine(t, 1, port), newMachine(t, 2, port)
	first.options.Kubernetes = "v1.37.2"
	first.start()
	token := first.token(true)
	for _, test := range []struct {
		what, kubernetes string
		data             int
		want             string
	}{
		{"an older API", "v1.36.9", datadir.Version, "its version v1.36.9 is too old for this cluster, which has v1.37.2; install that one there"},
		{"a newer API", "v1.39.0", datadir.Version, "its version v1.39.0 is too new for this cluster, which has v1.37.2; upgrade the servers that are there first"},
		{"newer data", "v1.38.0", datadir.Version + 1, fmt.Sprintf("its program is too new: it writes data of version %d, and this cluster's has version %d; upgrade", datadir.Version+1, datadir.Version)},
	} {
		joiner.options.Kubernetes = test.kubernetes
		j, err := membership.NewJoiner(joiner.options, first.url(), token)
		if err != nil {
			t.Fatal(err)
		}
		j.Data = test.data
		err = j.Join(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line: %s", test.what, err, test.want)
		}
		t.Logf("everynode: %v", err)
		if folder.Exists(joiner.options.DataDir) {
			t.Errorf("%s: a data directory was made", test.what)
		}
		if folder.Exists(filepath.Join(first.options.DataDir, membership.FileName)) || folder.Exists(folder.Peers(first.options.DataDir)) {
			t.Errorf("%s: the server that was asked has become one of several", test.what)
		}
	}
	joiner.join(first, token) // and the same with data of this version
}
