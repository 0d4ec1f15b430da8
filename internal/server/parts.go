package server

import (
	"context"
	"fmt"

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

// wait returns the first failure, or nil when all ended because they were told to.
func (p *parts) wait() error { return p.group.Wait() }
