package kv

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/storage/etcd/share"
)

// shareReminder is how often it is logged that writers have used up their shares.
const shareReminder = time.Minute

// Shares are what writers may write, each in a minute.
type Shares struct {
	writer  func(context.Context) string
	Refused prometheus.Counter

	mu   sync.Mutex // guards all below
	of   *share.Shares
	told time.Time
}

// NewShares gives each writer of those whom writer tells so many bytes a minute.
func NewShares(writer func(context.Context) string, perMinute int64) *Shares {
	return &Shares{writer: writer, of: share.New(perMinute), Refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "everynode_database_writes_refused_total",
		Help: "Writes that were put off since their writer had written more than its share of the database.",
	})}
}

// check refuses a write of one who has used up its share.
func (s *Shares) check(now time.Time, writer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.of.Wait(now, writer)
	if wait == 0 {
		return nil
	}
	s.Refused.Inc()
	if now.Sub(s.told) >= shareReminder {
		s.told = now
		klog.InfoS("A writer has written more than its share of the database, and has to wait", "user", writer, "wait",
			wait)
	}
	why := writer + " has written more to the database than one may in a minute"
	return apierrors.NewTooManyRequests(why, int(math.Ceil(wait.Seconds())))
}

func (s *Shares) wrote(now time.Time, writer string, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of.Wrote(now, writer, bytes)
}

// Limit returns keys and values through which nobody writes more than its share.
func (s *Shares) Limit(of clientv3.KV) clientv3.KV { return inShares{of, s} }

// inShares has writers who have used up their shares wait. What they delete takes no room, and is not counted.
type inShares struct {
	clientv3.KV
	shares *Shares
}

// Txn implements clientv3.KV. The API's storage writes nothing but transactions.
func (k inShares) Txn(ctx context.Context) clientv3.Txn {
	writer := k.shares.writer(ctx)
	if writer == "" {
		return k.KV.Txn(ctx)
	}
	return &shareTxn{Txn: k.KV.Txn(ctx), shares: k.shares, writer: writer}
}

// shareTxn counts what a transaction writes.
type shareTxn struct {
	clientv3.Txn
	shares *Shares
	writer string
	bytes  int
}

// If implements clientv3.Txn.
func (t *shareTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(conditions...)
	return t
}

// Then implements clientv3.Txn.
func (t *shareTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		if op.IsPut() {
			t.bytes += len(op.KeyBytes()) + len(op.ValueBytes())
		}
	}
	t.Txn = t.Txn.Then(ops...)
	return t
}

// Else implements clientv3.Txn.
func (t *shareTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

// Commit implements clientv3.Txn.
func (t *shareTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.bytes == 0 {
		return t.Txn.Commit()
	}
	err := t.shares.check(time.Now(), t.writer)
	if err != nil {
		return nil, err
	}
	answer, err := t.Txn.Commit()
	if err != nil || answer.Succeeded { // what failed may have been written
		t.shares.wrote(time.Now(), t.writer, t.bytes)
	}
	return answer, err
}
