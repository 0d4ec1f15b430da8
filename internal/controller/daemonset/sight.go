package daemonset

import (
	"context"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// lookEvery is the time between two looks whether Everynode's own kinds are followed.
const lookEvery = 2 * time.Second

// sight is whether Everynode's own kinds can be read and followed.
type sight struct {
	watches *Watches // nil: they always are
	kinds   []ownKind
}

type ownKind struct {
	name   string
	obj    client.Object
	synced toolscache.DoneChecker
}

// wait returns when each kind has been read, or is known not to be readable: who may
// not list them still gets daemons. False means that ctx ended first.
func (s *sight) wait(ctx context.Context, c clock.WithTicker) bool {
	if s.watches == nil {
		var synced []toolscache.DoneChecker
		for _, k := range s.kinds {
			synced = append(synced, k.synced)
		}
		return toolscache.WaitFor(ctx, "", synced...)
	}
	look := c.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for _, k := range s.kinds {
		for !toolscache.IsDone(k.synced) && s.watches.Lost(k.obj) == "" {
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
// when it has been read.
func (s *sight) look() (out rollouts.Sight) {
	if s.watches == nil {
		return out
	}
	for _, k := range s.kinds {
		why := s.watches.Lost(k.obj)
		if why == "" && !toolscache.IsDone(k.synced) {
			why = plural[k.name] + " have not been read yet"
		}
		if k.name == kindPolicy {
			out.Policies = why
		} else {
			out.Rollouts = why
		}
	}
	return out
}
