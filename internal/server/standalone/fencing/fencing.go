// Package fencing keeps a leader that slept from writing. A process that was stopped for longer than its Lease lasts,
// or whose machine was, still holds decisions of its own, while another leads: together they would take more daemons
// than a limit allows, and write over what the other remembers.
package fencing

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Fence is an election's lock that knows how long it is surely this process'. Others count its time from when they
// see it renewed, which is later than when that was asked for.
type Fence struct {
	resourcelock.Interface
	lasts   time.Duration
	clock   clock.PassiveClock
	renewed atomic.Pointer[time.Time]
}

// New returns a fence around a lock that others take over when it was not renewed for that long.
func New(lock resourcelock.Interface, lasts time.Duration, clock clock.PassiveClock) *Fence {
	return &Fence{Interface: lock, lasts: lasts, clock: clock}
}

// Get implements resourcelock.Interface. Who sees that another has the lock writes no more, though the election waits
// for a while whether it gets it back.
func (f *Fence) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := f.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != f.Identity() {
		f.renewed.Store(nil)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (f *Fence) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.note(record, func() error { return f.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (f *Fence) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return f.note(record, func() error { return f.Interface.Update(ctx, record) })
}

// note remembers when the lock was asked for, once it was had. Who gives it up has lost it before others can know.
func (f *Fence) note(record resourcelock.LeaderElectionRecord, write func() error) error {
	if record.HolderIdentity != f.Identity() {
		f.renewed.Store(nil)
		return write()
	}
	asked := f.clock.Now()
	err := write()
	if err == nil {
		f.renewed.Store(&asked)
	}
	return err
}

// Holds reports whether the lock is surely this process'. Both clocks must say so: the monotonic one may stand still
// while the machine sleeps, and the other may be set.
func (f *Fence) Holds() bool {
	at := f.renewed.Load()
	if at == nil {
		return false
	}
	now := f.clock.Now()
	return now.Sub(*at) < f.lasts && now.Round(0).Sub(at.Round(0)) < f.lasts
}

// Around returns a client configuration whose writes fail unsent while the lock is not surely this process'.
func (f *Fence) Around(config *restclient.Config) *restclient.Config {
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &gate{fence: f, next: next} })
	return config
}

// gate is where requests pass the fence.
type gate struct {
	fence *Fence
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || g.fence.Holds() {
		return g.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // nobody reads it
	}
	return nil, fmt.Errorf("another instance may lead: the lease %s was not renewed for %s",
		g.fence.Describe(), g.fence.lasts)
}
