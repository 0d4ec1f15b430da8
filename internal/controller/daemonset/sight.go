package daemonset

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// source is a kind that the controller listens to.
type source struct {
	kind   string
	obj    client.Object
	ignore func(old, obj metav1.Object) bool
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
