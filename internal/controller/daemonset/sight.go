package daemonset

import (
	"context"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/controller/daemonset/strange"
)

const (
	// lookEvery is the time between two looks whether Everynode's own kinds are followed.
	lookEvery = 2 * time.Second
	// awaitEvery is the time between two questions whether the API serves them.
	awaitEvery = 5 * time.Second
)

// sight is whether Everynode's own kinds can be read and followed.
type sight struct {
	watches *Watches // nil: they always are
	kinds   []ownKind
	// strange tells of objects that hold what only a newer program knows.
	strange *strange.Teller
}

// ownKind is one of them. Synced is nil as long as the API does not serve it. Late means that it was not
// served at the start. Once the owner runs, only the owner reads and writes both.
type ownKind struct {
	source
	synced toolscache.DoneChecker
	late   bool
}

func (k *ownKind) served() bool { return k.synced != nil }

// wait returns when each kind has been read, or is known not to be readable: who may
// not list them still gets daemons. False means that ctx ended first.
func (s *sight) wait(ctx context.Context, c clock.WithTicker) bool {
	if s.watches == nil {
		var synced []toolscache.DoneChecker
		for _, k := range s.kinds {
			if k.served() {
				synced = append(synced, k.synced)
			}
		}
		return toolscache.WaitFor(ctx, "", synced...)
	}
	look := c.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for _, k := range s.kinds {
		for k.served() && !toolscache.IsDone(k.synced) && s.watches.Lost(k.obj) == "" {
			select {
			case <-ctx.Done():
				return false
			case <-k.synced.Done():
			case <-look.C():
			}
		}
	}
	return ctx.Err() == nil
}

// look says what cannot be read or followed now. What could not is followed again only
// when it has been read. Variants says it of DaemonSetVariants.
func (s *sight) look() (out rollouts.Sight, variants string) {
	for _, k := range s.kinds {
		why := ""
		if s.watches != nil {
			why = s.watches.Lost(k.obj)
		}
		switch {
		case !k.served():
			why = plural[k.kind] + " are not served by the API: their definition is missing"
		case why == "" && (s.watches != nil || k.late) && !toolscache.IsDone(k.synced):
			why = plural[k.kind] + " have not been read yet"
		}
		switch k.kind {
		case kindPolicy:
			out.Policies = why
		case kindVariant:
			variants = why
		case kindRollout: // for NodeStartups nothing waits but nodes that start, which stay closed
			out.Rollouts = why
		}
	}
	return out, variants
}

// await listens to own kinds that the API does not serve yet, as soon as it does. The group ends with ctx.
func (c *Controller) await(ctx context.Context) *sync.WaitGroup {
	var running sync.WaitGroup
	for i := range c.own.kinds {
		if c.own.kinds[i].served() {
			continue
		}
		s := c.own.kinds[i].source
		running.Go(func() { c.awaitKind(ctx, i, s) })
	}
	return &running
}

func (c *Controller) awaitKind(ctx context.Context, i int, s source) {
	logger := klog.FromContext(ctx)
	logger.Info("The API does not serve a kind: its definition is missing", "kind", plural[s.kind])
	ask := c.cfg.Clock.NewTicker(awaitEvery)
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ask.C():
		}
		synced, off, err := c.listenTo(ctx, s)
		if err != nil {
			logger.V(4).Info("Cannot listen to a kind yet", "kind", s.kind, "err", err)
			continue
		}
		logger.Info("The API serves a kind that was missing", "kind", plural[s.kind])
		c.buffer.result(func(*owner) {
			c.own.kinds[i].synced, c.own.kinds[i].late = synced, true
			c.buffer.nudge() // the turn that takes this in has looked already
		})
		toolscache.WaitFor(ctx, "", synced)
		c.buffer.nudge() // and the one that looked since found it unread
		<-ctx.Done()
		off()
		return
	}
}
