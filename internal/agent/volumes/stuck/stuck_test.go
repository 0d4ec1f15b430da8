package stuck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// hanging is a call that ends when it is let go, whatever its context says.
type hanging struct {
	calls int
	goOn  chan struct{}
	ctx   context.Context //nolint:containedctx // It is looked at.
}

func (h *hanging) do(ctx context.Context) error {
	h.calls++
	h.ctx = ctx
	<-h.goOn
	return errors.New("the answer")
}

func TestACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := New(clock.RealClock{}, 2*time.Minute), &hanging{goOn: make(chan struct{})}
		began := time.Now()
		ask := func() error { return c.Do(t.Context(), "pod", "path /mnt", h.do) }
		if err := ask(); err == nil || !strings.HasPrefix(err.Error(), "path /mnt has had no answer since ") {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		if long := time.Since(began); long != 2*time.Minute {
			t.Errorf("it was waited for %s", long)
		}
		_ = ask()
		synctest.Wait()
		if long := time.Since(began); long != 2*time.Minute || h.calls != 1 {
			t.Errorf("who asks again waits for %s, and there are %d calls", long-2*time.Minute, h.calls)
		}
		if err := c.Do(t.Context(), "pod", "path /other", func(context.Context) error { return nil }); err != nil {
			t.Errorf("another call of the same owner: %v", err)
		}
		close(h.goOn)
		synctest.Wait()
		if err := ask(); err == nil || err.Error() != "the answer" || h.calls != 1 {
			t.Errorf("after it ended: %v, and %d calls", err, h.calls)
		}
		_ = ask()
		if h.calls != 2 || len(c.calls) != 0 {
			t.Errorf("later there are %d calls, and %d are kept", h.calls, len(c.calls))
		}
	})
}

func TestWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := New(clock.RealClock{}, 2*time.Minute), &hanging{goOn: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		began, ended := time.Now(), make(chan error, 1)
		go func() { ended <- c.Do(ctx, "pod", "path /mnt", h.do) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil || time.Since(began) != 0 {
			t.Errorf("who gives up gets %v after %s", err, time.Since(began))
		}
		synctest.Wait()
		if h.ctx.Err() == nil {
			t.Error("the call is not told")
		}
		close(h.goOn)
	})
}

func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h, other := New(clock.RealClock{}, time.Minute), &hanging{goOn: make(chan struct{})}, &hanging{goOn: make(chan struct{})}
		_ = c.Do(t.Context(), "pod", "path /mnt", h.do)
		_ = c.Do(t.Context(), "another", "path /mnt", other.do)
		synctest.Wait()
		c.GiveUp("pod")
		if h.ctx.Err() == nil || other.ctx.Err() != nil {
			t.Errorf("the owner's call is told %v, another's %v", h.ctx.Err(), other.ctx.Err())
		}
		_ = c.Do(t.Context(), "pod", "path /mnt", h.do)
		synctest.Wait()
		if h.calls != 1 {
			t.Error("a call that was given up, and hangs, is made again")
		}
		close(h.goOn)
		close(other.goOn)
		synctest.Wait()
		c.GiveUp("pod")
		c.GiveUp("another")
		if len(c.calls) != 0 {
			t.Errorf("%d calls are kept", len(c.calls))
		}

		h.goOn = make(chan struct{})
		began, waits := time.Now(), make(chan error, 1)
		go func() { waits <- c.Do(t.Context(), "pod", "path /mnt", h.do) }()
		synctest.Wait()
		c.GiveUp("pod")
		if err := <-waits; !errors.Is(err, context.Canceled) || time.Since(began) != 0 {
			t.Errorf("who waits for what is given up gets %v after %s", err, time.Since(began))
		}
		close(h.goOn)
	})
}
