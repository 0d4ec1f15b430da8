package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// parts are the loops of the control plane: when one ends, all end.
type parts struct {
	group *errgroup.Group
	ctx   context.Context //nolint:containedctx // The group's context belongs to the group.
}

func newParts(ctx context.Context) *parts {
	group, ctx := errgroup.WithContext(ctx)
	return &parts{group: group, ctx: ctx}
}

// run starts a part. A part that ends while the others should go on is an error.
func (p *parts) run(name string, f func(context.Context) error) {
	p.group.Go(func() error {
		err := f(p.ctx)
		if p.ctx.Err() != nil {
			return nil
		}
		if err == nil {
			return fmt.Errorf("the %s ended unexpectedly", name)
		}
		return err
	})
}

// partsPatience is how long parts may take to end once the database has failed.
const partsPatience = 15 * time.Second

// wait returns the first failure, or nil when all ended because they were told to. Whoever asks
// the database in the moment when it fails gets no answer, and no error either: once lost is
// closed, parts that have not ended within the patience are left to the end of the process.
func (p *parts) wait(lost <-chan struct{}, patience time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- p.group.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-lost:
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
	}
	if p.ctx.Err() == nil {
		return errors.New("the database failed, and nothing noticed")
	}
	if err := context.Cause(p.ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
