package loops

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// neverFilled is a cache whose server does not answer.
type neverFilled struct{ cache.Cache }

func (neverFilled) WaitForCacheSync(ctx context.Context) bool {
	<-ctx.Done()
	return false
}

// A server that is stopped while it starts does not wait for its caches.
func TestNobodyWaitsForACacheAfterTheEnd(t *testing.T) {
	stop := make(chan struct{})
	c := stoppableCache{neverFilled{}, stop}
	ended, end := context.WithCancel(t.Context())
	end()
	if c.WaitForCacheSync(ended) {
		t.Error("a cache that is not filled counts as filled while the server runs")
	}
	close(stop)
	if !c.WaitForCacheSync(t.Context()) {
		t.Error("the end does not end the waiting")
	}
}
