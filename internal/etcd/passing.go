package etcd

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/etcd/share"
)

// passing are the errors of a database that has a bad moment: another member begins to lead, or
// there is more to do than it can.
var passing = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrUnhealthy, rpctypes.ErrTooManyRequests,
	rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex,
}

// Passes reports whether an error of a database passes by itself. A write that failed with one may
// have been made, or be made still.
func Passes(err error) bool {
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

const (
	// passingFor is how long what fails for a reason that passes is tried again at most.
	passingFor = 30 * time.Second
	// passingPause is between two attempts.
	passingPause = 100 * time.Millisecond
)

// again does what may be done more than once, until it fails for no reason that passes.
func again[T any](ctx context.Context, do func() (T, error)) (out T, err error) {
	for end := time.Now().Add(passingFor); ; {
		if out, err = do(); !Passes(err) || time.Now().After(end) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(passingPause):
		}
	}
}

// steady has the reads of a start tried again, as etcd's own client does across a network: there
// nobody would ask a second time, and the server would end. Once it serves, those who ask are told.
type steady struct {
	clientv3.KV
	serving func() bool
}

// Get implements clientv3.KV.
func (s steady) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if s.serving() {
		return s.KV.Get(ctx, key, options...)
	}
	return again(ctx, func() (*clientv3.GetResponse, error) { return s.KV.Get(ctx, key, options...) })
}

// shareReminder is how often it is logged that writers have used up their shares.
const shareReminder = time.Minute

// shares are what writers may write.
type shares struct {
	writer  func(context.Context) string
	refused prometheus.Counter

	mu   sync.Mutex // guards all below
	of   *share.Shares
	told time.Time
}

func newShares(writer func(context.Context) string, perMinute int64) *shares {
	return &shares{writer: writer, of: share.New(perMinute), refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "everynode_database_writes_refused_total",
		Help: "Writes that were put off since their writer had written more than its share of the database.",
	})}
}

// check refuses a write of one who has used up its share.
func (s *shares) check(now time.Time, writer string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := s.of.Wait(now, writer)
	if wait == 0 {
		return nil
	}
	s.refused.Inc()
	if now.Sub(s.told) >= shareReminder {
		s.told = now
		klog.InfoS("A writer has written more than its share of the database, and has to wait", "user", writer, "wait", wait)
	}
	why := writer + " has written more to the database than one may in a minute"
	return apierrors.NewTooManyRequests(why, int(math.Ceil(wait.Seconds())))
}

func (s *shares) wrote(now time.Time, writer string, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of.Wrote(now, writer, bytes)
}

// inShares has writers who have used up their shares wait. What they delete takes no room, and is not counted.
type inShares struct {
	clientv3.KV
	shares *shares
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
	shares *shares
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
