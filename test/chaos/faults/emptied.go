package faults

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// Emptied takes what is left in watches that are stopped. The informers of controller-runtime filter them, and such a
// filter waits for ever for somebody who takes its next event: with it the round's whole API server stays in memory.
func Emptied(lw toolscache.ListerWatcher) toolscache.ListerWatcher {
	with := toolscache.ToListerWatcherWithContext(lw)
	return &toolscache.ListWatch{
		ListWithContextFunc: with.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := with.WatchWithContext(ctx, o)
			if err != nil {
				return nil, err
			}
			return emptied{w}, nil
		},
	}
}

type emptied struct{ watch.Interface }

// Stop implements watch.Interface.
func (e emptied) Stop() {
	e.Interface.Stop()
	go func() {
		for range e.ResultChan() {
		}
	}()
}
