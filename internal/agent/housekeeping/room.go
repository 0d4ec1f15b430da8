package housekeeping

import (
	"context"
	"fmt"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/diskuse"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/evictor"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/measure"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// Keep makes what keeps the node from running full.
func (k *Keepers) Keep(
	runtime *cri.Runtime, vols *volumes.Manager, manager *pods.Manager, reporter *nodestatus.Reporter,
) {
	c := &k.config
	k.Collector = images.NewCollector(images.CollectorConfig{
		Service: c.Images, Used: k.Fetcher.Beside(k.Stock.Pinned.Beside(runtime.UsedImages)), Clock: c.Clock,
		High: c.ImageGCHigh, Low: c.ImageGCLow, MinAge: c.ImageMinAge, Unused: c.ImageMaxAge,
		Space: func(ctx context.Context) (available, capacity int64, err error) {
			now, err := reporter.Observe(ctx)
			if err != nil {
				return 0, 0, err
			}
			disk := now[eviction.ImageFSAvailable]
			return disk.Available, disk.Capacity, nil
		},
		Warn: func(reason, message string) {
			c.Events.Node(c.NodeName, reason, message)
		},
	})
	k.Gauge = measure.Gauge{Runtime: runtime, Volumes: vols, Meter: diskuse.NewMeter(c.Clock)}
	k.Evictor = evictor.New(evictor.Config{
		NodeName: c.NodeName, Rules: c.Rules, Observe: reporter.Observe, Report: reporter.Check,
		Usage: k.Gauge.Pods, Pods: manager, Events: c.Events, Clock: c.Clock,
		FreeImages: func(ctx context.Context) error {
			if _, err := k.Collector.RemoveUnused(ctx); err != nil {
				return fmt.Errorf("free the disk: %w", err)
			}
			return nil
		},
	})
}
