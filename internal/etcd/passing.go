package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
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
