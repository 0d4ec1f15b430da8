// Package stuck waits for calls that may never end, such as those to a file system of another machine that is away, no
// longer than it must. A call that nobody waits for any more goes on by itself; it is not made a second time meanwhile,
// and what came of it is told to who asks next.
package stuck

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Calls are calls under way. They are safe for concurrent use.
type Calls struct {
	clock    clock.Clock
	patience time.Duration

	mu    sync.Mutex
	calls map[key]*call
}

type key struct{ owner, what string }

type call struct {
	since  time.Time
	ctx    context.Context //nolint:containedctx // Its end is waited for.
	cancel context.CancelFunc
	done   chan struct{}
	err    error // may be read once done is closed
}

// New returns no calls yet. Each is waited for as long as patience says.
func New(clk clock.Clock, patience time.Duration) *Calls {
	return &Calls{clock: clk, patience: patience, calls: map[key]*call{}}
}

// Do makes a call of an owner's, or waits for the same one if that is under way. The call must be able to do without
// whoever asked for it. Its context ends when ctx does while somebody waits, and by GiveUp.
func (c *Calls) Do(ctx context.Context, owner, what string, do func(context.Context) error) error {
	k := key{owner, what}
	is, left := c.begin(ctx, k, do)
	patience := c.clock.NewTimer(left)
	defer patience.Stop()
	var err error
	select {
	case <-is.done:
	case <-ctx.Done():
		is.cancel()
		err = ctx.Err()
	case <-is.ctx.Done():
		err = fmt.Errorf("%s is given up: %w", what, context.Canceled)
	case <-patience.C():
		err = fmt.Errorf("%s has had no answer since %s; is it of another machine or a driver that is away?", what,
			is.since.UTC().Format(time.RFC3339))
	}
	select {
	case <-is.done:
	default:
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k] == is {
		delete(c.calls, k)
	}
	return is.err
}

// begin makes the call if it is not under way, and says for how long to wait for it.
func (c *Calls) begin(ctx context.Context, k key, do func(context.Context) error) (*call, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if is := c.calls[k]; is != nil {
		return is, min(max(c.patience-now.Sub(is.since), 0), c.patience)
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	is := &call{since: now, ctx: own, cancel: cancel, done: make(chan struct{})}
	c.calls[k] = is
	go func() {
		defer cancel()
		is.err = do(own)
		close(is.done)
	}()
	return is, c.patience
}

// GiveUp cancels the owner's calls under way, and forgets what came of those that have ended.
func (c *Calls) GiveUp(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, is := range c.calls {
		if k.owner != owner {
			continue
		}
		is.cancel()
		select {
		case <-is.done:
			delete(c.calls, k)
		default: // It is not to be made again meanwhile.
		}
	}
}
