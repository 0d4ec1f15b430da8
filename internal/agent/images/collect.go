package images

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/imagegc"
)

// collectEvery is how often the disk of images is looked at.
const collectEvery = 5 * time.Minute

// CollectorConfig says when a Collector removes images. All fields but Unused must be set.
type CollectorConfig struct {
	Service internalapi.ImageManagerService
	// Used names the images that must stay, by ID or by any other name.
	Used func(ctx context.Context) (map[string]bool, error)
	// Space says how many bytes of the disk of images are free, of how many.
	Space func(ctx context.Context) (available, capacity int64, err error)
	// High and Low are percentages: images are removed when more than High is in use, until Low is. A High of 100 switches
	// it off.
	High, Low int
	// MinAge is how old an image must be. Unused is after how long without use it goes whatever the disk is like; 0 for
	// never.
	MinAge, Unused time.Duration
	// Warn tells the user, as an event about the node.
	Warn  func(reason, message string)
	Clock clock.WithTicker
}

// Collector removes images that nobody uses when the disk fills up. It is safe for concurrent use.
type Collector struct {
	cfg CollectorConfig

	mu     sync.Mutex
	memory imagegc.Memory
}

// NewCollector returns a Collector.
func NewCollector(cfg CollectorConfig) *Collector { return &Collector{cfg: cfg} }

// Run looks at the disk now and then until ctx ends. At first it only takes note of what there is: pods that were about
// to use an image have a while to do it.
func (c *Collector) Run(ctx context.Context) {
	ticker := c.cfg.Clock.NewTicker(collectEvery)
	defer ticker.Stop()
	for work := c.note; ; work = c.collect {
		if err := work(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not remove unused images")
			c.cfg.Warn("ImageGCFailed", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// note remembers which images there are.
func (c *Collector) note(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.list(ctx)
	return err
}

// collect removes images if the disk is too full.
func (c *Collector) collect(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	images, err := c.list(ctx)
	if err == nil && c.cfg.Unused > 0 {
		now := c.cfg.Clock.Now()
		if _, err = c.removeAll(ctx, c.memory.Old(images, c.cfg.Unused, now)); err == nil {
			images, err = c.list(ctx)
		}
	}
	if err != nil || c.cfg.High >= 100 {
		return err
	}
	available, capacity, err := c.cfg.Space(ctx)
	if err != nil {
		return err
	}
	want := imagegc.Want(available, capacity, c.cfg.High, c.cfg.Low)
	if want <= 0 {
		return nil
	}
	freed, err := c.remove(ctx, images, want)
	if err == nil && freed < want {
		c.cfg.Warn("FreeDiskSpaceFailed", fmt.Sprintf("Failed to garbage collect required amount of images. "+
			"Attempted to free %d bytes, but only found %d bytes eligible to free.", want, freed))
	}
	return err
}

// RemoveUnused removes all images that may go, and returns how many bytes they had.
func (c *Collector) RemoveUnused(ctx context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	images, err := c.list(ctx)
	if err != nil {
		return 0, err
	}
	return c.remove(ctx, images, 1<<62)
}

// list reads the images there are and remembers them. The caller holds mu.
func (c *Collector) list(ctx context.Context) ([]imagegc.Image, error) {
	list, err := c.cfg.Service.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	used, err := c.cfg.Used(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]imagegc.Image, len(list))
	for i, image := range list {
		out[i] = imagegc.Image{ID: image.Id, Size: int64(image.Size), Keep: image.Pinned || inUse(image, used)}
	}
	c.memory.Note(out, c.cfg.Clock.Now())
	return out, nil
}

func inUse(image *runtimeapi.Image, used map[string]bool) bool {
	if used[image.Id] {
		return true
	}
	for _, names := range [][]string{image.RepoTags, image.RepoDigests} {
		for _, name := range names {
			if used[name] {
				return true
			}
		}
	}
	return false
}

// remove removes images until want bytes are free.
func (c *Collector) remove(ctx context.Context, images []imagegc.Image, want int64) (freed int64, err error) {
	return c.removeAll(ctx, c.memory.Choose(images, want, c.cfg.MinAge, c.cfg.Clock.Now()))
}

// removeAll removes images. It goes on after errors and returns them joined.
func (c *Collector) removeAll(ctx context.Context, images []imagegc.Image) (freed int64, err error) {
	var errs []error
	for _, image := range images {
		if err := c.cfg.Service.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: image.ID}); err != nil {
			errs = append(errs, fmt.Errorf("remove image %s: %w", image.ID, err))
			continue
		}
		klog.FromContext(ctx).Info("Removed an image that nobody uses", "image", image.ID, "bytes", image.Size)
		freed += image.Size
	}
	return freed, errors.Join(errs...)
}
