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
