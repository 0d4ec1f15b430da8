package etcd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/rand"
)

const smallQuota = 32 << 20

// fill overwrites one key until the database refuses.
func fill(t *testing.T, s *Server) {
	t.Helper()
	value := rand.String(1 << 20)
	client := s.newClient()
	for range 200 {
		_, err := client.Put(t.Context(), "/registry/configmaps/ns/one", value)
		if err == nil || strings.Contains(err.Error(), "request timed out") { // A machine may be slow.
			continue
		}
		if !strings.Contains(err.Error(), "database space exceeded") {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("it never becomes full")
}

// takesWrites waits until the database takes writes.
func takesWrites(t *testing.T, s *Server) {
	t.Helper()
	client := s.newClient()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := client.Put(ctx, "/registry/leases/x", "y")
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it takes no writes: %v; %+v", err, s.Space())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Whoever may update one object can fill a database. It makes room by itself.
func TestAFullDatabaseTakesWritesAgain(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "d"), NoFsync: true, quota: smallQuota})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fill(t, s)
	takesWrites(t, s)
	if is := s.Space(); is.Size > smallQuota*9/10 || len(s.etcd.Server.Alarms()) != 0 {
		t.Errorf("it has %+v, and the alarms %v", is, s.etcd.Server.Alarms())
	}
	got, err := s.newClient().KV.Get(t.Context(), "/registry/configmaps/ns/one")
	if err != nil || len(got.Kvs) != 1 || len(got.Kvs[0].Value) != 1<<20 {
		t.Errorf("what was stored is %v, %v", got, err)
	}
}

// Each member of several has an alarm and a file of its own.
func TestFullMembersTakeWritesAgain(t *testing.T) {
	c := newCrowd(t)
	a, b := c.newMember("a"), c.newMember("b")
	a.options.quota, b.options.quota = smallQuota, smallQuota
	c.start(a)
	c.join(a, b)
	fill(t, a.Server)
	takesWrites(t, a.Server)
	wants(t, b, "/registry/leases/x", "y")
}

// A member waits while another one defragments.
func TestOneDefragmentsAtATime(t *testing.T) {
	c := newCrowd(t)
	a, b := c.newMember("a"), c.newMember("b")
	c.start(a)
	c.join(a, b)
	holed := func() int64 {
		put(t, a, "/registry/k", strings.Repeat("x", 1<<20))
		put(t, a, "/registry/k", "small")
		a.compact(t.Context(), a.etcd.Server.KV().Rev())
		return a.Space().Size
	}
	b.defragmenting.Store(true)
	size := holed()
	if err := a.defragment(t.Context()); err != nil || a.Space().Size < size {
		t.Errorf("it defragmented while another did: %v", err)
	}
	b.defragmenting.Store(false)
	if err := a.defragment(t.Context()); err != nil || a.Space().Size >= size {
		t.Errorf("it had %d bytes and has %+v, %v", size, a.Space(), err)
	}
}

// A backup of a database that is full can be restored, and the restored one takes writes.
func TestRestoreOfAFullDatabase(t *testing.T) {
	base := t.TempDir()
	s, err := Start(t.Context(), Options{Dir: filepath.Join(base, "d"), NoFsync: true, quota: smallQuota})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "/registry/things/kept", "kept")
	s.end() // nothing makes room
	fill(t, s)
	path := filepath.Join(base, "snapshot")
	f, err := os.Create(path)
	if err == nil {
		err = s.Snapshot(t.Context(), f)
	}
	if err == nil {
		err = f.Close()
	}
	s.Close()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "restored")
	if _, err := Restore(t.Context(), path, dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	r, err := Start(t.Context(), Options{Dir: dir, NoFsync: true, quota: smallQuota})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if is := r.Space(); is.Size > smallQuota/4 {
		t.Errorf("the file has %d bytes after the restore", is.Size)
	}
	for _, alarm := range r.etcd.Server.Alarms() {
		if alarm.GetAlarm() == pb.AlarmType_NOSPACE {
			t.Errorf("the alarm was restored: %v", alarm)
		}
	}
	write(t, r, "/registry/things/new", "new")
	got, err := r.newClient().KV.Get(t.Context(), "/registry/things/", clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 2 {
		t.Errorf("there is %v, %v", got, err)
	}
}
