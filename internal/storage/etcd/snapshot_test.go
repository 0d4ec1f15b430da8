package etcd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/everynode/everynode/internal/storage/etcd/offline"
)

func startAt(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Start(t.Context(), Options{Dir: dir, NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, s *Server, key, value string) int64 {
	t.Helper()
	answer, err := s.newClient().Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

// A client that knew more than the backup has sees time go on, and every object as newer.
func TestRestoreNeverGoesBackwards(t *testing.T) {
	base := t.TempDir()
	s := startAt(t, filepath.Join(base, "first"))
	for i := range 2500 {
		write(t, s, fmt.Sprintf("/registry/things/%04d", i), "kept")
	}
	for _, of := range []string{string(ClusterKeys), string(PeerKeys), turnKey, offline.WatermarkPrefix + "1",
		offline.WatermarkPrefix + "2"} {
		write(t, s, of, "of several servers")
	}
	lease, err := s.newClient().Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.newClient().Put(t.Context(), "/registry/events/e", "leased",
		clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(base, "snapshot")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	seen := write(t, s, "/registry/things/0000", "lost")
	s.Close()

	for round, now := range []time.Time{time.Now(), time.Now().Add(time.Minute)} {
		dir := filepath.Join(base, fmt.Sprint("restored", round))
		if _, err := Restore(t.Context(), path, dir, now); err != nil {
			t.Fatal(err)
		}
		r := startAt(t, dir)
		client := r.newClient().Client
		all, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		if len(all.Kvs) != 2501 {
			t.Errorf("%d values are there, want 2501", len(all.Kvs))
		}
		if left, err := client.Get(t.Context(), "/everynode/", clientv3.WithPrefix()); err != nil ||
			len(left.Kvs) != 1 || string(left.Kvs[0].Key) != restoredKey {
			t.Errorf("what members told each other is there: %v, %v", left.Kvs, err)
		}
		if name, err := r.Restored(t.Context()); err != nil || name != now.UTC().Format(time.RFC3339Nano) {
			t.Errorf("the restore is called %q, %v", name, err)
		}
		for _, kv := range all.Kvs {
			if kv.ModRevision <= seen {
				t.Fatalf("%s has the revision %d, and a client has seen %d", kv.Key, kv.ModRevision, seen)
			}
			if want := map[bool]string{true: "leased", false: "kept"}[kv.Lease != 0]; string(kv.Value) != want {
				t.Fatalf("%s is %q, want %q", kv.Key, kv.Value, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got := <-client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(seen+1))
		cancel()
		if got.CompactRevision <= seen {
			t.Errorf("a watch that goes on at %d is not told that it must begin again: %+v", seen+1, got)
		}
		seen = write(t, r, "/registry/things/0000", "after")
		r.Close()
	}
}

// What is not acknowledged as a snapshot cannot be restored, and nothing stays of it.
func TestRestoreRefusesWhatIsNoSnapshot(t *testing.T) {
	s := startAt(t, filepath.Join(t.TempDir(), "d"))
	var whole bytes.Buffer
	if err := s.Snapshot(t.Context(), &whole); err != nil {
		t.Fatal(err)
	}
	s.Close()
	changed := bytes.Clone(whole.Bytes())
	for i := len(changed) / 2; i < len(changed)/2+4096; i++ {
		changed[i] ^= 0x55
	}
	for name, content := range map[string][]byte{"empty": nil, "text": []byte("hello"),
		"half": whole.Bytes()[:whole.Len()/2], "changed": changed} {
		base := t.TempDir()
		path := filepath.Join(base, "snapshot")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(t.Context(), path, filepath.Join(base, "out"), time.Now()); err == nil {
			t.Errorf("%s: it was restored", name)
		}
	}
}

func TestCopyLeavesTheDatabaseAsItIs(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "d")
	s := startAt(t, dir)
	write(t, s, "/registry/a", "1")
	s.Close()
	before := listing(t, dir)
	var out bytes.Buffer
	if err := Copy(t.Context(), dir, t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the folder was\n%s\nand is\n%s", before, after)
	}
	path := filepath.Join(base, "snapshot")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), path, filepath.Join(base, "out"), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func listing(t *testing.T, dir string) (out string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		out += fmt.Sprintln(path, info.Size(), info.ModTime(), info.Mode())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// One of several can be copied when the others are gone, and hears from none of them: one
// that runs must not take the copy's word for that of the member.
func TestCopyOfAMember(t *testing.T) {
	c := newCrowd(t)
	a := c.newMember("a")
	c.start(a)
	b := c.newMember("b")
	c.join(a, b)
	put(t, a, "/registry/k", "v")
	wants(t, b, "/registry/k", "v")
	b.stop()
	// The other still runs, and looks for it.
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	f, err := os.Create(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	if err := Copy(t.Context(), b.dir, scratch, f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if leader := a.Leader(); leader != "" && leader != a.Self() {
		t.Errorf("the copy leads: %s", leader)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := Restore(t.Context(), snapshot, dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	r := &one{Server: startAt(t, dir), name: "restored"}
	defer r.stop()
	wants(t, r, "/registry/k", "v")
	if members := r.Members(); len(members) != 1 {
		t.Errorf("the restored database has the members %v", members)
	}
	// The member goes on where it was.
	c.start(b)
	put(t, a, "/registry/k", "w")
	wants(t, b, "/registry/k", "w")
}

// The one that is left may have been away while the others went on. For who saw what they wrote time goes on.
func TestResetNeverGoesBackwards(t *testing.T) {
	c, first, second, third := three(t)
	put(t, first, "/registry/pods/ns/p", "1")
	wants(t, third, "/registry/pods/ns/p", "1")
	third.stop()
	var seen int64
	for i := range 200 {
		seen = write(t, first.Server, "/registry/pods/ns/p", fmt.Sprint(i))
	}
	first.stop()
	second.stop()
	if err := third.reset(t); err != nil {
		t.Fatal(err)
	}
	c.start(third)
	client := third.newClient().Client
	got, err := client.Get(t.Context(), "/registry/pods/", clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "1" || got.Kvs[0].ModRevision <= seen {
		t.Errorf("clients have seen revision %d, and now there is %v, %v", seen, got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told := <-client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(seen+1))
	if told.CompactRevision <= seen {
		t.Errorf("a watch that goes on at %d is not told that it must begin again: %+v", seen+1, told)
	}
	if name, err := third.Restored(t.Context()); err != nil || name == "" {
		t.Errorf("agents do not learn of it: %q, %v", name, err)
	}
}

// killedDir tells this program, when it is run once more, where to write until it is killed.
const killedDir = "TEST_KILLED_DIR"

// writeAndDie acknowledges some writes and is killed.
func writeAndDie(dir string) error {
	s, err := Start(context.Background(), Options{Dir: dir})
	if err != nil {
		return err
	}
	client := s.newClient()
	for i := range killedWrites {
		_, err := client.Put(context.Background(), fmt.Sprintf("/registry/k%02d", i), "v")
		if err != nil {
			return err
		}
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

const killedWrites = 50

// What was acknowledged in the moment before a server was killed is in a copy of its folder.
func TestCopyHasAllThatWasAcknowledged(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		t.Fatal(writeAndDie(dir))
	}
	for range 3 {
		base := t.TempDir()
		dir, path := filepath.Join(base, "d"), filepath.Join(base, "snapshot")
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestCopyHasAllThatWasAcknowledged$")
		child.Env = append(os.Environ(), killedDir+"="+dir)
		out, err := child.CombinedOutput()
		if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("%v: %s", err, out)
		}
		var snapshot bytes.Buffer
		must(t, Copy(t.Context(), dir, t.TempDir(), &snapshot))
		must(t, os.WriteFile(path, snapshot.Bytes(), 0o600))
		_, err = Restore(t.Context(), path, filepath.Join(base, "restored"), time.Now())
		must(t, err)
		s := startAt(t, filepath.Join(base, "restored"))
		got, err := s.newClient().KV.Get(t.Context(), "/registry/k", clientv3.WithPrefix(), clientv3.WithCountOnly())
		s.Close()
		if err != nil || got.Count != killedWrites {
			t.Errorf("%d writes were acknowledged, and %d are there, %v", killedWrites, got.Count, err)
		}
	}
}
