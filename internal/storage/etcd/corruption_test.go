package etcd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/everynode/everynode/internal/storage/etcd/hashcheck"
)

// spoil changes what one member holds of a key, as a bad disk would.
func spoil(t *testing.T, m *one, key string) {
	t.Helper()
	tx := m.etcd.Server.Backend().BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	var at, spoiled []byte
	err := tx.UnsafeForEach(schema.Key, func(revision, stored []byte) error {
		var kv mvccpb.KeyValue
		err := proto.Unmarshal(stored, &kv)
		if err != nil || string(kv.GetKey()) != key {
			return err
		}
		kv.Value[0] ^= 1
		at = slices.Clone(revision)
		spoiled, err = proto.Marshal(&kv)
		return err
	})
	if err != nil || at == nil {
		t.Fatalf("%s has no %s to spoil: %v", m.name, key, err)
	}
	tx.UnsafePut(schema.Key, at, spoiled)
}

// compactAll compacts to what is there, and returns once every member has hashed it.
func compactAll(t *testing.T, members ...*one) {
	t.Helper()
	revision := members[0].etcd.Server.KV().Rev()
	_, err := members[0].etcd.Server.Compact(t.Context(), &pb.CompactionRequest{Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		eventually(t, m.name+" has hashed what it holds", func() bool {
			return slices.ContainsFunc(m.hashes(), func(h hashcheck.Hash) bool { return h.Revision >= revision })
		})
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is never so: %s", what)
		}
	}
}

// Of three members that one stops which holds something else, and no other.
func TestCorruptMemberStops(t *testing.T) {
	c, first, second, third := three(t)
	for _, m := range c.all { // from now on they compare often
		m.stop()
		m.options.compareEvery = 50 * time.Millisecond
		c.start(m)
	}
	put(t, first, "/kept", "a")
	for _, m := range c.all {
		wants(t, m, "/kept", "a")
	}
	compactAll(t, c.all...)
	for _, m := range c.all {
		eventually(t, m.name+" finds all of them the same", func() bool {
			m.comparison.mu.Lock()
			defer m.comparison.mu.Unlock()
			return len(hashcheck.With(hashcheck.Same, m.comparison.verdicts)) == 3 && !m.comparison.same.IsZero()
		})
	}

	spoil(t, second, "/kept")
	put(t, first, "/other", "b")
	for _, m := range c.all {
		wants(t, m, "/other", "b")
	}
	compactAll(t, c.all...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := second.Failed(ctx)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "everynode members remove second") {
		t.Fatalf("the corrupt member says %v", err)
	}
	second.stop()
	s, err := Start(t.Context(), second.options)
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("the corrupt member starts again: %v", err)
		if err == nil {
			s.Close()
		}
	}
	for _, m := range []*one{first, third} {
		put(t, m, "/goes/on", m.name)
		wants(t, m, "/kept", "a")
		now, done := context.WithTimeout(t.Context(), time.Millisecond)
		err := m.Failed(now)
		done()
		if err != nil {
			t.Errorf("%s stops as well: %v", m.name, err)
		}
	}

	// What the error says mends it.
	gone := second.options.Peers.URL
	for _, m := range first.Members() {
		if m.URL == gone {
			c.change("take the corrupt one off the list", func() error { return first.Remove(t.Context(), m.ID) })
		}
	}
	err = os.Rename(second.dir, second.dir+".corrupt")
	if err != nil {
		t.Fatal(err)
	}
	c.join(first, second)
	wants(t, second, "/kept", "a")
}

// Of two members that differ nobody knows which is right: both go on and say so, and none joins until one is gone.
func TestTwoMembersDiffer(t *testing.T) {
	c := newCrowd(t)
	first := c.newMember("first")
	c.start(first)
	second := c.newMember("second")
	c.join(first, second)
	put(t, first, "/kept", "a")
	wants(t, second, "/kept", "a")
	spoil(t, second, "/kept")
	compactAll(t, first, second)
	for _, m := range c.all {
		err := m.compare(t.Context(), time.Unix(1e9, 0))
		if err != nil {
			t.Errorf("%s stops: %v", m.name, err)
		}
		if v := m.comparison.verdicts[m.Self()]; v.State != hashcheck.Disputed {
			t.Errorf("%s finds itself %+v", m.name, v)
		}
		_, err = m.AddLearner(t.Context(), "https://127.0.0.1:1")
		if !errors.Is(err, ErrDisputed) || !strings.Contains(err.Error(), "(first, second)") {
			t.Errorf("%s lets another join: %v", m.name, err)
		}
		_, err = os.Stat(filepath.Join(m.dir, corruptFile))
		if err == nil {
			t.Errorf("%s counts as corrupt", m.name)
		}
	}
	put(t, second, "/goes/on", "b")
	wants(t, first, "/goes/on", "b")

	// Without the one that is wrong all is well.
	c.change("take the wrong one off the list", func() error { return first.Remove(t.Context(), second.Self()) })
	err := first.compare(t.Context(), time.Unix(2e9, 0))
	if err != nil || first.Disputed() != nil || first.comparison.same.Unix() != 2e9 {
		t.Errorf("the one that is left says %v, %v, and was well at %v", err, first.Disputed(), first.comparison.same)
	}
}
