package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
	"github.com/everynode/everynode/internal/storage/etcd/kv"
)

// moody is a database that answers with an error for some times: before it has done what it was
// asked for, or after it.
type moody struct {
	clientv3.KV
	err   error
	times int
	done  bool
}

func (m *moody) fails() bool {
	m.times--
	return m.times >= 0
}

func (m *moody) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if m.fails() {
		return nil, m.err
	}
	return m.KV.Get(ctx, key, options...)
}

func (m *moody) Delete(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.DeleteResponse,
	error) {
	if m.fails() {
		return nil, m.err
	}
	return m.KV.Delete(ctx, key, options...)
}

func (m *moody) Txn(ctx context.Context) clientv3.Txn { return &moodyTxn{m.KV.Txn(ctx), m} }

type moodyTxn struct {
	clientv3.Txn
	m *moody
}

func (t *moodyTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *moodyTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }
func (t *moodyTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }

func (t *moodyTxn) Commit() (*clientv3.TxnResponse, error) {
	if !t.m.fails() {
		return t.Txn.Commit()
	}
	if t.m.done {
		if _, err := t.Txn.Commit(); err != nil {
			return nil, err
		}
	}
	return nil, t.m.err
}

// inMoods gives what reads and writes a start through a database that fails for some times.
func inMoods(t *testing.T, err error, times int, done bool) (*Server, *apistorage.Stored, *moody) {
	t.Helper()
	s, failed := Start(t.Context(), Options{Dir: t.TempDir(), NoFsync: true})
	must(t, failed)
	t.Cleanup(s.Close)
	client := s.newClient().Client
	reads, ok := client.KV.(kv.Steady)
	if !ok {
		t.Fatalf("the reads of a start go through %T", client.KV)
	}
	m := &moody{KV: reads.KV, err: err, times: times, done: done}
	reads.KV = m
	client.KV = steadyWrites{reads, m}
	return s, apistorage.NewStored(client), m
}

// steadyWrites has writes go through the moods as well, which reads in a start do already.
type steadyWrites struct {
	kv.Steady
	m *moody
}

func (s steadyWrites) Txn(ctx context.Context) clientv3.Txn { return s.m.Txn(ctx) }

func (s steadyWrites) Delete(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.DeleteResponse,
	error) {
	return s.m.Delete(ctx, key, options...)
}

// A database that has a bad moment does not end a start: what is read and written first is tried again.
func TestBadMomentsOfAStart(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		rpctypes.ErrLeaderChanged, rpctypes.ErrNoLeader, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail,
		rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTooManyRequests,
		rpctypes.Error(rpctypes.ErrGRPCLeaderChanged), // as the member in this process tells it
	} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			badMoments(t, err)
		})
	}
}

func badMoments(t *testing.T, err error) {
	t.Helper()
	for _, done := range []bool{false, true} {
		_, stored, m := inMoods(t, err, 2, done)
		if made, err := stored.Create(t.Context(), "/k", []byte("v")); err != nil || !made {
			t.Errorf("made once, answered late (%v): made %v, %v", done, made, err)
		}
		m.times = 2
		if made, err := stored.Create(t.Context(), "/k", []byte("other")); err != nil || made {
			t.Errorf("somebody else's is there (%v): made %v, %v", done, made, err)
		}
		m.times = 2
		value, revision, err := stored.Get(t.Context(), "/k")
		if err != nil || string(value) != "v" {
			t.Errorf("read %q, %v", value, err)
		}
		m.times = 2
		if replaced, err := stored.Replace(t.Context(), "/k", revision, []byte("w")); err != nil || !replaced {
			t.Errorf("replaced once, answered late (%v): %v, %v", done, replaced, err)
		}
		m.times = 2
		if replaced, err := stored.Replace(t.Context(), "/k", revision, []byte("x")); err != nil || replaced {
			t.Errorf("replaced what is no more (%v): %v, %v", done, replaced, err)
		}
		m.times = 2
		var read []string
		each := func(key string, value []byte, _ int64) error { read = append(read, key+"="+string(value)); return nil }
		if err := stored.Each(t.Context(), "/", each); err != nil || fmt.Sprint(read) != "[/k=w]" {
			t.Errorf("there are %v, %v", read, err)
		}
		m.times = 2
		if key, err := stored.First(t.Context(), "/", "/"); err != nil || key != "/k" {
			t.Errorf("the first key is %q, %v", key, err)
		}
		m.times = 2
		if err := stored.Delete(t.Context(), "/k"); err != nil {
			t.Error(err)
		}
		m.times = 2
		if empty, err := stored.Empty(t.Context(), "/"); err != nil || !empty {
			t.Errorf("empty: %v, %v", empty, err)
		}
	}
}

// What does not pass is told at once, and what passes not for ever.
func TestWhatDoesNotPass(t *testing.T) {
	t.Parallel()
	s, stored, m := inMoods(t, rpctypes.ErrCompacted, 1000, false)
	if _, _, err := stored.Get(t.Context(), "/k"); !errors.Is(err, rpctypes.ErrCompacted) || m.times != 999 {
		t.Errorf("after %d attempts: %v", 1000-m.times, err)
	}
	m.err = rpctypes.ErrNoLeader
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := stored.Create(ctx, "/k", []byte("v"))
	if !errors.Is(err, rpctypes.ErrNoLeader) || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a leader: %v", err)
	}
	// Once the server serves, readers are told, and decide themselves.
	s.Serve()
	m.times = 1
	if _, _, err := stored.Get(t.Context(), "/k"); !errors.Is(err, rpctypes.ErrNoLeader) {
		t.Errorf("a server that serves keeps a reader waiting: %v", err)
	}
}
