package beside

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// leavers is how many objects are written at a time by whoever leaves. How many requests that makes in a second is
	// up to the client's limit.
	leavers = 16
	// sayEvery is how often it is said how many are done.
	sayEvery = 10 * time.Second
)

// crew writes many objects, several at a time. Now and then it says how many of them are done, and calls still.
type crew struct {
	out   io.Writer
	still func(context.Context) error
}

// each does something with each of so many objects. It returns the first error, after which it begins nothing more.
func (c crew) each(ctx context.Context, many int, done string, do func(ctx context.Context, i int) error) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(leavers)
	var mu sync.Mutex // guards all below
	count, said := 0, time.Now()
	isDue := func() bool {
		mu.Lock()
		defer mu.Unlock()
		count++
		if time.Since(said) < sayEvery {
			return false
		}
		said = time.Now()
		fmt.Fprintf(c.out, "%d of %d %s ...\n", count, many, done)
		return true
	}
	for i := 0; i < many && working.Err() == nil; i++ {
		group.Go(func() error {
			err := do(working, i)
			if err != nil || !isDue() {
				return err
			}
			return c.still(working)
		})
	}
	err := group.Wait()
	if err == nil {
		err = ctx.Err() // some may not have begun
	}
	return err
}
