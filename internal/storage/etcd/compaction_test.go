package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// A server that is started every few minutes, because it crashes or its machine does, must not
// let the database grow for ever.
func TestItIsCompactedAtTheStart(t *testing.T) {
	const more = 300
	o := Options{Dir: t.TempDir(), NoFsync: true}
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	client := s.newClient()
	var writers errgroup.Group
	for range 100 {
		writers.Go(func() error {
			for range (keptRevisions + more) / 100 {
				if _, err := client.KV.Put(context.Background(), "k", "v"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = writers.Wait()
	s.Close()
	if err != nil {
		t.Fatal(err)
	}

	if s, err = Start(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at := func(revision int64) error {
		_, err := s.newClient().KV.Get(t.Context(), "k", clientv3.WithRev(revision))
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := at(more / 2)
		if errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("a revision that is older than the last %d is still there, error %v", keptRevisions, err)
		}
	}
	if err := at(more + 2); err != nil {
		t.Errorf("one of the last %d revisions is gone: %v", keptRevisions, err)
	}
}

// Where little is written, what is old is forgotten too, and the storages say so: readers of long ago must not be
// answered for ever.
func TestWhatIsOldIsForgotten(t *testing.T) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), NoFsync: true, Keep: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := s.newClient()
	written, err := client.KV.Put(t.Context(), "k", "v")
	if err == nil {
		_, err = client.KV.Put(t.Context(), "k", "w")
	}
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := client.KV.Get(t.Context(), "k", clientv3.WithRev(written.Header.Revision))
		if errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the first revision is still there, error %v", err)
		}
	}
	if forgotten := (compactRevision{s}).CompactRevision(); forgotten != written.Header.Revision+1 {
		t.Errorf("the storages are told that %d was compacted, it is %d", forgotten, written.Header.Revision+1)
	}
	if now, err := client.KV.Get(t.Context(), "k"); err != nil || string(now.Kvs[0].Value) != "w" {
		t.Errorf("what there is now is %v, %v", now, err)
	}
}
