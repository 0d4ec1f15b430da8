package hotstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/consistency"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Database tells what is stored of a kind and what changes, in the database's own order.
type Database interface {
	// List calls each for every value as of one revision, which it returns.
	List(ctx context.Context, each func(key string, value []byte, revision int64) error) (int64, error)
	// Watch calls change for all that changes after a revision, with a nil value for what
	// is deleted, and reached with the revision up to which all was told. It ends with ctx,
	// with an error of one of the two, or with one of its own, Expired if the revision is
	// not kept any more, and ServiceUnavailable if it may not hear of changes.
	Watch(
		ctx context.Context,
		after int64,
		change func(key string, value []byte, revision int64) error,
		reached func(revision int64) error,
	) error
	// RequestProgress makes a running Watch tell how far it is.
	RequestProgress(ctx context.Context) error
}

// Config is what a cache is made of.
type Config struct {
	GroupResource schema.GroupResource
	// ResourcePrefix is what the keys begin with, such as "/pods/".
	ResourcePrefix string
	// Storage writes to the database, and reads old versions from it. It decodes with Decoder.
	Storage  storage.Interface
	Decoder  *Decoder
	Database Database
	// New and NewList make empty objects.
	New, NewList func() runtime.Object
	// Attributes are what selectors look at.
	Attributes storage.AttrFunc
	// Triggers is the field, at most one, by which watches are kept apart.
	Triggers storage.IndexerFuncs
	Indexers *cache.Indexers
	// History is how many events are kept for watches that were cut off.
	History int
	// Slack is by how many events a watch may be behind before it is ended; four times
	// the history, and 10000 at least, when 0. A watch inside of the process may be behind by ten times as many.
	Slack int
	// Renewal is how writes are found that need not go to the database; nil for none. It is
	// for a database that no other process writes to or reads.
	Renewal *Renewal
	Clock   clock.WithTicker
}

// Cache is a storage of one kind that answers from memory what it can.
type Cache struct {
	Config
	versioner    storage.Versioner
	triggerField string
	triggerOf    storage.IndexerFunc
	ask          chan struct{}
	stop         context.CancelFunc
	running      sync.WaitGroup

	mu      sync.RWMutex // guards all below
	objects store.Indexer
	// bytes is how much the database holds of the objects.
	bytes    int64
	revision uint64
	history  *history
	departed departures
	watchers watchers
	// told counts the events that watchers were told of.
	told uint64
	// writes are those under way, or not told by the database yet, where there are renewals.
	writes  map[string]*writes
	waiting map[*waiter]struct{}
	// ready is set once all is loaded; since is when that changed, failure why it is not.
	ready   bool
	since   time.Time
	failure error
	// readyAt is the revision at which it is ready again after the database was cut off; 0 at other times.
	readyAt uint64
}

// waiter waits until the cache has reached a revision.
type waiter struct {
	revision uint64
	reached  chan struct{}
}

var _ storage.Interface = (*Cache)(nil)

// New returns a cache that follows the database until it is stopped.
func New(c Config) (*Cache, error) {
	if len(c.Triggers) > 1 {
		return nil, fmt.Errorf("watches of %s are kept apart by one field at most, not %d", c.GroupResource, len(c.Triggers))
	}
	if c.History < 1 {
		return nil, fmt.Errorf("a history of %d events of %s is too short", c.History, c.GroupResource)
	}
	if err := runtime.CheckCodec(c.Decoder.codec, c.New()); err != nil {
		return nil, fmt.Errorf("the codec cannot store %s: %w", c.GroupResource, err)
	}
	if c.Slack == 0 {
		c.Slack = max(4*c.History, 10000)
	}
	out := &Cache{
		Config: c, versioner: c.Storage.Versioner(), ask: make(chan struct{}, 1),
		objects: store.NewIndexer(unwrapped(c.Indexers)), history: newHistory(c.History), waiting: map[*waiter]struct{}{},
		writes:   map[string]*writes{},
		watchers: newWatchers(), since: c.Clock.Now(),
	}
	for field, f := range c.Triggers {
		out.triggerField, out.triggerOf = field, f
	}
	out.departed = departures{newHistory(c.History), out.triggerValue}
	c.Decoder.known = out.namesake
	ctx, stop := context.WithCancel(context.Background())
	out.stop = stop
	out.running.Go(func() { out.run(ctx) })
	out.running.Go(func() { out.askForProgress(ctx) })
	out.running.Go(func() { c.Decoder.detector.Run(ctx.Done()) })
	if utilfeature.DefaultFeatureGate.Enabled(features.DetectCacheInconsistency) || consistency.PanicOnCacheInconsistency {
		checker := consistency.NewChecker(c.ResourcePrefix, c.GroupResource, c.NewList, stored{out}, c.Storage)
		out.running.Go(func() { checker.Run(ctx.Done()) })
	}
	return out, nil
}

// namesake returns the object that is known by the name of another one, or nil.
func (c *Cache) namesake(of runtime.Object) runtime.Object {
	m, ok := of.(metav1.Object)
	if !ok {
		return nil
	}
	element, ok, err := c.objects.GetByKey(c.keyOf(m))
	if err != nil || !ok {
		return nil
	}
	return entryOf(element).Object
}

// keyOf is where an object is kept.
func (c *Cache) keyOf(m metav1.Object) string {
	key := strings.TrimSuffix(c.ResourcePrefix, "/") + "/"
	if namespace := m.GetNamespace(); namespace != "" {
		key += namespace + "/"
	}
	return key + m.GetName()
}

// unwrapped lets index functions see the objects and not the cache's entries.
func unwrapped(in *cache.Indexers) *cache.Indexers {
	if in == nil {
		return nil
	}
	out := cache.Indexers{}
	for name, f := range *in {
		out[name] = func(obj any) ([]string, error) {
			if e, ok := obj.(*entry); ok {
				obj = e.Object
			}
			return f(obj)
		}
	}
	return &out
}

// Stop ends all watches and follows the database no more.
func (c *Cache) Stop() {
	c.stop()
	c.running.Wait()
}

// Ready says whether all is loaded.
func (c *Cache) Ready() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.ready
}

// MarkConsistent implements what the library's check of caches wants to tell: one that has
// found a difference. No old versions are kept that could be wrong; the check counts it.
func (c *Cache) MarkConsistent(bool) {}

// notReady is what is answered before all is loaded, or nil after that.
func (c *Cache) notReady() error {
	if c.ready {
		return nil
	}
	message := "storage is (re)initializing"
	if c.failure != nil {
		message += ": " + c.failure.Error()
	}
	// The library lets clients wait as long as it is not ready already, within bounds.
	after := min(max(int(c.Clock.Since(c.since).Seconds()), 1), 30)
	return apierrors.NewTooManyRequests(message, after)
}

// freshFor is how long a read waits for the cache to come as far as it wants.
const freshFor = 3 * time.Second

// askEvery is how often the database is asked how far it is while somebody waits.
const askEvery = 50 * time.Millisecond

// waitUntil waits until the cache has reached a revision.
func (c *Cache) waitUntil(ctx context.Context, revision uint64) error {
	w := &waiter{revision: revision, reached: make(chan struct{})}
	c.mu.Lock()
	if c.revision >= revision {
		c.mu.Unlock()
		return nil
	}
	c.waiting[w] = struct{}{}
	c.mu.Unlock()
	select {
	case c.ask <- struct{}{}:
	default:
	}
	timer := c.Clock.NewTimer(freshFor)
	defer timer.Stop()
	select {
	case <-w.reached:
		return nil
	case <-timer.C():
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, w)
	if c.revision >= revision {
		return nil
	}
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err //nolint:wrapcheck // The caller went away.
	}
	return storage.NewTooLargeResourceVersionError(revision, c.revision, 1)
}

// askForProgress asks the database how far it is as long as somebody waits: what others
// write moves its revision too, and is not told here.
func (c *Cache) askForProgress(ctx context.Context) {
	ticker := c.Clock.NewTicker(askEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.ask:
		}
		for c.isAwaited() {
			// It fails when the watch is being made, and is asked again.
			_ = c.Database.RequestProgress(ctx)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
			}
		}
	}
}

func (c *Cache) isAwaited() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.waiting) > 0
}

// reach says that the cache has come to a revision. The lock is held.
func (c *Cache) reach(revision uint64) {
	if revision < c.revision {
		return
	}
	c.revision = revision
	for w := range c.waiting {
		if w.revision <= revision {
			close(w.reached)
			delete(c.waiting, w)
		}
	}
	if c.readyAt > 0 && c.readyAt <= revision {
		c.ready, c.since, c.failure, c.readyAt = true, c.Clock.Now(), nil, 0
	}
}
