package standalone

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/server/standalone/catchup"
)

// late has what decides begin once the cache has seen what the API held when this instance began to lead.
type late struct {
	waiter catchup.Waiter
	done   chan struct{}
}

func newLate(o Options, objects client.Reader) (*late, error) {
	api, err := metadata.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client for versions of objects: %w", err)
	}
	leads := func(*appsv1.DaemonSet) bool { return true }
	if o.Beside != nil {
		leads = admit.Taken
	}
	return &late{catchup.Waiter{API: api, Cache: objects, Leads: leads}, make(chan struct{})}, nil
}

func (l *late) before(run func(context.Context) error) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		if !l.waiter.Await(ctx) {
			return nil
		}
		close(l.done)
		return run(ctx)
	})
}
