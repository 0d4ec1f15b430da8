package endpointslice

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// restful is how much of the time one Service may take: one part in so many. To look
// after a Service with thousands of pods takes a while, and during a rollout there is
// always news of one of them.
const restful = 5

// rested lets each Service rest after it was looked at, for as long as that took and
// several times more.
type rested struct {
	reconcile.Reconciler
	clock clock.PassiveClock

	mu    sync.Mutex
	until map[types.NamespacedName]time.Time
}

func newRested(r reconcile.Reconciler, c clock.PassiveClock) *rested {
	return &rested{Reconciler: r, clock: c, until: map[types.NamespacedName]time.Time{}}
}

// Reconcile implements reconcile.Reconciler.
func (r *rested) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	began := r.clock.Now()
	if wait := r.left(key.NamespacedName, began); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	result, err := r.Reconciler.Reconcile(ctx, key)
	took := r.clock.Since(began)
	// What takes less than news gather for costs nobody anything.
	if rest := (restful - 1) * took; rest > settle {
		r.mu.Lock()
		r.until[key.NamespacedName] = began.Add(took + rest)
		r.mu.Unlock()
	}
	return result, err
}

// left is for how long a Service must rest yet.
func (r *rested) left(name types.NamespacedName, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.until[name].Sub(now)
	if wait <= 0 {
		delete(r.until, name)
	}
	return wait
}
