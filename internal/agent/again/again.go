// Package again tries parts of the node again that failed, and that the node can do without.
package again

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// pause is how long to wait before a part that failed is tried again.
const pause = 10 * time.Second

// Keep makes of a part that the node can do without one that does not fail: it is tried again until ctx ends. A socket
// for plugins that cannot be made is no reason to leave all pods alone.
func Keep(clk clock.Clock, what string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			err := run(ctx)
			if err == nil || ctx.Err() != nil {
				return nil //nolint:nilerr // The end of the agent is no failure.
			}
			klog.FromContext(ctx).Error(err, "A part of the node failed and is tried again; the rest goes on", "part", what,
				"after", pause)
			select {
			case <-ctx.Done():
				return nil
			case <-clk.After(pause):
			}
		}
	}
}
