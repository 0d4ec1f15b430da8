// Package starthook has what hooks of the start have in common. The library ends the
// process, with the stacks of all goroutines, when one of them fails.
package starthook

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
)

// UnlessStopped is the hook that runs that, and does not fail for the reason that the
// server is being stopped.
func UnlessStopped(run func(context.Context) error) genericapiserver.PostStartHookFunc {
	return func(c genericapiserver.PostStartHookContext) error {
		if err := run(c.Context); err != nil && c.Err() == nil {
			return err
		}
		return nil
	}
}

// On a machine that is overloaded a write can take half a minute, and to start once more would load it further. Who
// waits for a server gives it five minutes (packaging/everynode-server.service).
const (
	insistFor   = 2 * time.Minute
	insistEvery = 500 * time.Millisecond
)

// Insist has run, which may be run again after it failed, tried for a while: databases
// and connections have bad moments, such as when another member begins to lead.
func Insist(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		_ = wait.PollUntilContextTimeout(ctx, insistEvery, insistFor, true, func(ctx context.Context) (bool, error) {
			if err = run(ctx); err != nil {
				klog.FromContext(ctx).V(1).Info("A step of the start failed; it is tried again", "err", err)
			}
			return err == nil, nil
		})
		return err
	}
}
