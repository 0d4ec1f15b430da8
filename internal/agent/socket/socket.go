// Package socket notices that the file of a socket was removed while somebody serves at it: a listener does not, and
// nobody reaches it any more.
package socket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/utils/clock"
)

// LookEvery is how often a socket is looked for.
const LookEvery = 10 * time.Second

// ErrGone says that a socket is not there any more, or that another one is in its place.
var ErrGone = errors.New("somebody removed the socket")

// Watch waits until the file at path is not the one of now. It returns nil once ctx ends.
func Watch(ctx context.Context, path string, clk clock.Clock) error {
	first, err := os.Lstat(path)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-clk.After(LookEvery):
		}
		var now os.FileInfo
		now, err = os.Lstat(path)
		if err == nil && !os.SameFile(first, now) {
			err = os.ErrNotExist
		}
	}
	return fmt.Errorf("%s: %w", path, errors.Join(ErrGone, err))
}

// Serve serves until ctx ends, or until the socket at path is gone, of which it is an error. Stop must end serve.
func Serve(ctx context.Context, path string, clk clock.Clock, serve func() error, stop func()) error {
	ctx, end := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() {
		defer stop()
		gone <- Watch(ctx, path, clk)
	}()
	err := serve()
	alive := ctx.Err() == nil
	end()
	lost := <-gone
	if !alive {
		return nil
	}
	return errors.Join(lost, err)
}
