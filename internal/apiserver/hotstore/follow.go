package hotstore

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	"k8s.io/klog/v2"
)

// retryEvery is the pause before the database is read, or watched, again.
const retryEvery = time.Second

// run loads what there is and follows what changes, over and over.
func (c *Cache) run(ctx context.Context) {
	defer c.forgetAll(nil)
	for ctx.Err() == nil {
		err := c.load(ctx)
		if err == nil {
			err = c.follow(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		klog.ErrorS(err, "Cache starts again", "resource", c.GroupResource)
		c.forgetAll(err)
		c.pause(ctx)
	}
}

func (c *Cache) pause(ctx context.Context) {
	timer := c.Clock.NewTimer(retryEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// load reads everything.
func (c *Cache) load(ctx context.Context) error {
	start := c.Clock.Now()
	var elements []any
	var bytes int64
	revision, err := c.Database.List(ctx, func(key string, value []byte, revision int64) error {
		object, err := c.Decoder.begin(value, revision)
		if err != nil {
			return fmt.Errorf("decode %s: %w", key, err)
		}
		elements = append(elements, &store.Element{Key: key, Object: &entry{Object: object, size: len(value), stored: start}})
		bytes += int64(len(value))
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.objects.Replace(elements, ""); err != nil {
		return fmt.Errorf("index what is stored: %w", err)
	}
	c.bytes = bytes
	c.history.begin(uint64(revision))
	c.departed.begin(uint64(revision))
	c.revision = 0
	c.reach(uint64(revision))
	for key := range c.writes {
		c.settled(key, uint64(revision))
	}
	c.ready, c.since, c.failure, c.readyAt = true, c.Clock.Now(), nil, 0
	metrics.WatchCacheInitializations.WithLabelValues(c.GroupResource.Group, c.GroupResource.Resource).Inc()
	metrics.WatchCacheInitializationDuration.WithLabelValues(c.GroupResource.Group, c.GroupResource.Resource).Observe(
		c.Clock.Since(start).Seconds(),
	)
	return nil
}

// forgetAll ends all watches: nothing that is told from now on follows what they know.
func (c *Cache) forgetAll(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready {
		c.ready, c.since = false, c.Clock.Now()
	}
	c.failure, c.readyAt = err, 0
	c.watchers.each(func(w *watcher) { w.end() })
	c.watchers = newWatchers()
}

// follow applies what changes until the database keeps no more what was missed. A watch
// that ends for another reason is made again, which those who watch here do not notice, unless
// the database was cut off for so long that what they know may be old.
func (c *Cache) follow(ctx context.Context) error {
	for {
		var batch []*event
		err := c.Database.Watch(ctx, int64(c.at()), func(key string, value []byte, revision int64) error {
			e, err := c.read(key, value, uint64(revision))
			batch = append(batch, e)
			return err
		}, func(revision int64) error {
			c.apply(batch, uint64(revision))
			batch = batch[:0]
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err() //nolint:wrapcheck // It is told to nobody.
		case apierrors.IsResourceExpired(err), isUnreadable(err):
			return err
		case apierrors.IsServiceUnavailable(err):
			klog.InfoS("Watches end, since the database is cut off", "resource", c.GroupResource, "reason", err)
			c.forgetAll(err)
			c.comeBack(ctx)
			continue
		}
		klog.V(1).InfoS("Watch of the database ended", "resource", c.GroupResource, "reason", err)
		c.pause(ctx)
	}
}

// readFor is how long one attempt to read the database's revision may take.
const readFor = 10 * time.Second

// comeBack waits until the database answers again for all of its members. From the revision that it tells then on the
// cache is ready; nothing needs to be loaded, since the watch goes on where it ended.
func (c *Cache) comeBack(ctx context.Context) {
	for c.pause(ctx); ctx.Err() == nil; c.pause(ctx) {
		attempt, cancel := context.WithTimeout(ctx, readFor)
		revision, err := c.Storage.GetCurrentResourceVersion(attempt)
		cancel()
		if err != nil {
			continue // It is known to be cut off.
		}
		c.mu.Lock()
		c.readyAt = revision
		c.waiting[&waiter{revision: revision, reached: make(chan struct{})}] = struct{}{}
		c.reach(c.revision)
		c.mu.Unlock()
		select {
		case c.ask <- struct{}{}:
		default:
		}
		return
	}
}

func (c *Cache) at() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.revision
}

// unreadable is a value that cannot be decoded.
type unreadable struct {
	key string
	err error
}

// Error implements error.
func (u *unreadable) Error() string { return fmt.Sprintf("decode %s: %v", u.key, u.err) }

func isUnreadable(err error) bool {
	_, ok := err.(*unreadable) //nolint:errorlint // It comes back as it was returned.
	return ok
}

// read makes an event of a change. Its previous object is found when it is applied.
func (c *Cache) read(key string, value []byte, revision uint64) (*event, error) {
	metrics.EventsReceivedCounter.WithLabelValues(c.GroupResource.Group, c.GroupResource.Resource).Inc()
	e := &event{key: key, revision: revision}
	if value == nil {
		return e, nil
	}
	object, err := c.Decoder.shared(value, int64(revision))
	if err != nil {
		return nil, &unreadable{key, err}
	}
	e.object = &entry{Object: object, size: len(value), stored: c.Clock.Now()}
	return e, nil
}

// apply takes over what happened up to a revision, and tells those who watch.
func (c *Cache) apply(batch []*event, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range batch {
		c.settled(e.key, revision)
		if !c.take(e) {
			continue
		}
		c.history.add(e)
		c.departed.add(e)
		c.watchers.tell(c, e)
	}
	c.reach(revision)
	metrics.RecordResourceVersion(c.GroupResource, revision)
}

// take changes the object, and says whether there was something to change.
func (c *Cache) take(e *event) bool {
	if known, ok, err := c.objects.GetByKey(e.key); err == nil && ok {
		e.previous = entryOf(known)
		c.bytes -= int64(e.previous.size)
	}
	element := &store.Element{Key: e.key}
	if e.object == nil {
		if e.previous == nil {
			return false // Put and deleted in one revision: nobody has seen it.
		}
		element.Object = e.previous
		logged(c.objects.Delete(element))
		return true
	}
	element.Object = e.object
	c.bytes += int64(e.object.size)
	logged(c.objects.Update(element))
	return true
}

// logged tells of an error that the index cannot have with what it is given here.
func logged(err error) {
	if err != nil {
		klog.ErrorS(err, "Cannot index an object")
	}
}
