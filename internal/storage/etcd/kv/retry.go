// Package kv stands between clients and the keys of a database: it tries again what fails for a moment, holds writers
// to their shares, and has writes succeed only during the turn in which they were decided.
package kv

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// passing are the errors of a database that has a bad moment: another member begins to lead, or
// there is more to do than it can.
var passing = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrUnhealthy,
	rpctypes.ErrTooManyRequests,
	rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost,
	rpctypes.ErrTimeoutWaitAppliedIndex,
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

// Again does what may be done more than once, until it fails for no reason that passes.
func Again[T any](ctx context.Context, do func() (T, error)) (out T, err error) {
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

// Steady has the reads of a start tried again, as etcd's own client does across a network: there
// nobody would ask a second time, and the server would end. Once it serves, those who ask are told.
type Steady struct {
	clientv3.KV
	// Serving reports whether the server serves, and reads are tried once.
	Serving func() bool
}

// Get implements clientv3.KV.
func (s Steady) Get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if s.Serving() {
		return s.KV.Get(ctx, key, options...)
	}
	return Again(ctx, func() (*clientv3.GetResponse, error) { return s.KV.Get(ctx, key, options...) })
}

// OneLine returns the error of a database as one whose text is one line.
func OneLine(err error) error {
	if !strings.Contains(err.Error(), "\n") {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
}
