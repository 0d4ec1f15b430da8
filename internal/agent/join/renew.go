package join

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	firstRetry = 2 * time.Second
	lastRetry  = 5 * time.Minute
	// lastUrgentRetry holds while there is no usable certificate.
	lastUrgentRetry = time.Minute
)

// Run gets the serving certificate if there is none and replaces both certificates after about 80 % of their lives, or
// when the cluster's authorities are replaced, until ctx ends.
func (id *Identity) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { id.followTrust(ctx) })
	wg.Go(func() {
		id.keep(ctx, kept{"client", id.client.Load, id.refreshClient, id.clientOutdated, id.wakeClient})
	})
	wg.Go(func() {
		id.keep(ctx, kept{"serving", id.serving.Load, id.renewServing, id.servingOutdated, id.wakeServing})
	})
	wg.Wait()
	return nil
}

// kept is a certificate that is renewed when it is time, or when it is outdated; a word on wake makes its keeper look.
type kept struct {
	kind     string
	current  func() *tls.Certificate
	renew    func(context.Context) error
	outdated func(*tls.Certificate) bool
	wake     <-chan struct{}
}

// keep renews one certificate whenever it is time; a failure is tried again soon, then ever less often.
func (id *Identity) keep(ctx context.Context, k kept) {
	logger := klog.FromContext(ctx).WithValues("certificate", k.kind)
	retry := firstRetry
	for {
		if pair := k.current(); pair != nil && valid(pair.Leaf, id.Now()) && !k.outdated(pair) {
			// Spread, so that nodes that joined together don't come together.
			at := renewalTime(pair.Leaf, 0.75+0.1*rand.Float64())
			if soonest := id.cfg.Clock.Now().Add(firstRetry); at.Before(soonest) {
				at = soonest // even when the server issues ever shorter ones
			}
			logger.V(2).Info("Certificate will be renewed", "at", at)
			if !id.sleepUntil(ctx, at, k.wake) {
				return
			}
			if id.Now().Before(at) {
				continue // woken
			}
		}
		err := k.renew(ctx)
		if err == nil {
			retry = firstRetry
			continue
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errNotJoined) {
			if !id.sleepUntil(ctx, id.cfg.Clock.Now().Add(firstRetry), nil) {
				return
			}
			continue
		}
		if pair := k.current(); pair == nil || !valid(pair.Leaf, id.Now()) {
			retry = min(retry, lastUrgentRetry)
		}
		logger.Error(err, "Certificate could not be got", "retryIn", retry)
		if !id.sleepUntil(ctx, id.cfg.Clock.Now().Add(retry), nil) {
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

// sleepUntil waits for a moment of the clock or a word on wake; false means that ctx ended. It looks at the clock now
// and then, because timers stand still while a machine sleeps.
func (id *Identity) sleepUntil(ctx context.Context, at time.Time, wake <-chan struct{}) bool {
	for {
		left := at.Sub(id.cfg.Clock.Now())
		if left <= 0 {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-wake:
			return true
		case <-id.cfg.Clock.After(min(left, 10*time.Minute)):
		}
	}
}
