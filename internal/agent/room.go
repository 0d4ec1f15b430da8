package agent

import (
	"context"
	"fmt"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/diskuse"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/evictor"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/measure"
)

// makeRoomKeepers puts together what keeps the node from running full.
func (a *Agent) makeRoomKeepers(n *node, services cri.Services) {
	n.images = images.NewCollector(images.CollectorConfig{
		Service: services.Images, Used: n.fetcher.Beside(n.stock.Pinned.Beside(n.runtime.UsedImages)), Clock: a.clk,
		High: a.cfg.ImageGCHigh, Low: a.cfg.ImageGCLow, MinAge: a.cfg.ImageMinAge, Unused: a.cfg.ImageMaxAge,
		Space: func(ctx context.Context) (available, capacity int64, err error) {
			now, err := n.reporter.Observe(ctx)
			if err != nil {
				return 0, 0, err
			}
			disk := now[eviction.ImageFSAvailable]
			return disk.Available, disk.Capacity, nil
		},
		Warn: func(reason, message string) {
			n.events.Node(a.cfg.NodeName, reason, message)
		},
	})
	n.gauge = measure.Gauge{Runtime: n.runtime, Volumes: n.volumes, Meter: diskuse.NewMeter(a.clk)}
	n.evictor = evictor.New(evictor.Config{
		NodeName: a.cfg.NodeName, Rules: a.cfg.Rules, Observe: n.reporter.Observe, Report: n.reporter.Check,
		Usage: n.gauge.Pods, Pods: n.pods, Events: n.events, Clock: a.clk,
		FreeImages: func(ctx context.Context) error {
			if _, err := n.images.RemoveUnused(ctx); err != nil {
				return fmt.Errorf("free the disk: %w", err)
			}
			return nil
		},
	})
}
