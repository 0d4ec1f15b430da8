package hotstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	pathkey "k8s.io/apiserver/pkg/storage/cacher/key"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	flowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// bookmarkEvery is how often a watcher is told how far it is, when nothing happens.
	bookmarkEvery = time.Minute
	// bookmarkBefore is how long before its deadline it is told for the last time.
	bookmarkBefore = 2 * time.Second
	// resultRoom is how many events may wait for the reader of a watch, besides those
	// that are not looked at yet.
	resultRoom, triggeredRoom = 100, 10
)

// watcher is one watch.
type watcher struct {
	cache     *Cache
	key       string
	predicate storage.SelectionPredicate
	scope     scope
	trigger   string
	triggered bool
	inside    bool
	bookmarks bool
	deadline  time.Time

	// What it is told first, and after which revision it is told the rest.
	initial    func() ([]any, error)
	missed     []*event
	renewed    func() ([]*event, error)
	initialEnd uint64
	after      uint64

	result chan watch.Event
	wake   chan struct{}
	done   chan struct{}

	mu      sync.Mutex // guards all below
	pending []*delivery
	ended   bool
}

var _ watch.Interface = (*watcher)(nil)

func newWatcher(ctx context.Context, c *Cache, key string, options storage.ListOptions) *watcher {
	p := options.Predicate
	w := &watcher{
		cache: c, key: key, predicate: p, scope: scopeOf(ctx, p), inside: isInside(ctx), bookmarks: p.AllowWatchBookmarks,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.deadline, _ = ctx.Deadline()
	for _, field := range p.IndexFields {
		if field == c.triggerField && c.triggerOf != nil {
			w.trigger, w.triggered = p.Field.RequiresExactMatch(field)
		}
	}
	room := resultRoom
	if w.triggered {
		room = triggeredRoom
	}
	w.result = make(chan watch.Event, room)
	return w
}

// triggerOnly reports whether the trigger's field alone says what is told: what is none of it any more has departed.
func (w *watcher) triggerOnly() bool {
	p := w.predicate
	return w.triggered && w.trigger != "" && (p.Label == nil || p.Label.Empty()) && len(p.Field.Requirements()) == 1
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.cache.mu.Lock()
	w.cache.watchers.remove(w)
	w.cache.mu.Unlock()
	w.end()
}

// end makes it tell no more.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended, w.pending = true, nil
		close(w.done)
	}
}

// hand adds an event. A watcher that is too far behind is ended: what it has not looked at
// must not fill the memory.
func (w *watcher) hand(d *delivery, slack uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	if len(w.pending) > 0 && d.order-w.pending[0].order > slack {
		metrics.TerminatedWatchersCounter.WithLabelValues(w.cache.GroupResource.Group, w.cache.GroupResource.Resource).Inc()
		klog.V(1).InfoS(
			"Slow watch is ended",
			"resource", w.cache.GroupResource, "key", w.key, "fields", w.predicate.Field, "labels", w.predicate.Label,
		)
		w.ended, w.pending = true, nil
		close(w.done)
		return
	}
	w.pending = append(w.pending, d)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what was added, or up to which revision nothing was.
func (w *watcher) take() ([]*delivery, uint64) {
	// Events are added under the cache's lock: with it, nothing is between the two.
	w.cache.mu.RLock()
	defer w.cache.mu.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.pending
	w.pending = nil
	return out, w.cache.revision
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.result)
	defer w.Stop()
	if !w.begin(ctx) {
		return
	}
	flowcontrol.WatchInitialized(ctx)
	timer, ticks := w.timer()
	if timer != nil {
		defer timer.Stop()
	}
	for {
		bookmark := false
		select {
		case <-ctx.Done():
			return
		case <-w.done:
			return
		case <-ticks:
			bookmark = true
		case <-w.wake:
		}
		at, ok := w.sendAdded(ctx)
		if !ok {
			return
		}
		if !bookmark {
			continue
		}
		if !w.mark(ctx, max(at, w.after), false) {
			return
		}
		if next, ok := w.next(); ok {
			timer.Reset(next)
		}
	}
}

// sendAdded sends what came since the last time, and returns the revision up to which
// that was everything.
func (w *watcher) sendAdded(ctx context.Context) (at uint64, ok bool) {
	added, at := w.take()
	for _, d := range added {
		isNew := d.revision > w.after || d.renewed && d.revision == w.after
		if isNew && !w.send(ctx, w.convert(d)) {
			return at, false
		}
	}
	return at, true
}

// begin tells what there is, and what was missed.
func (w *watcher) begin(ctx context.Context) bool {
	events := w.missed
	if w.initial != nil {
		found, err := w.initial()
		if err != nil {
			klog.ErrorS(err, "Cannot list what a watch begins with", "resource", w.cache.GroupResource)
			return false
		}
		events = elements(found, w.after)
	}
	if w.renewed != nil {
		renewed, err := w.renewed()
		if err != nil {
			klog.ErrorS(err, "Cannot go on with a watch", "resource", w.cache.GroupResource)
			return false
		}
		events = append(events, renewed...)
		slices.SortStableFunc(events, byRevision)
	}
	w.initial, w.missed, w.renewed = nil, nil, nil
	metrics.InitCounter.WithLabelValues(w.cache.GroupResource.Group, w.cache.GroupResource.Resource).
		Add(float64(len(events)))
	for i, e := range events {
		d := &delivery{event: e, attributesOf: w.cache.Attributes, versioner: w.cache.versioner}
		if !w.send(ctx, w.convert(d)) {
			return false
		}
		w.after = max(w.after, e.revision)
		events[i] = nil
	}
	return w.initialEnd == 0 || w.mark(ctx, w.initialEnd, true)
}

func (w *watcher) mark(ctx context.Context, revision uint64, endsInitial bool) bool {
	object, err := w.cache.bookmark(revision, endsInitial)
	if err != nil {
		klog.ErrorS(err, "Cannot make a bookmark", "resource", w.cache.GroupResource)
		return false
	}
	return w.send(ctx, &watch.Event{Type: watch.Bookmark, Object: object})
}

// timer says when to tell how far it is.
func (w *watcher) timer() (clock.Timer, <-chan time.Time) {
	next, ok := w.next()
	if !w.bookmarks || !ok {
		return nil, nil
	}
	timer := w.cache.Clock.NewTimer(next)
	return timer, timer.C()
}

func (w *watcher) next() (time.Duration, bool) {
	if w.deadline.IsZero() {
		return bookmarkEvery, true
	}
	last := w.deadline.Add(-bookmarkBefore).Sub(w.cache.Clock.Now())
	return min(bookmarkEvery, last), last > 0
}

// convert says what an event means to this watcher; nil for nothing.
func (w *watcher) convert(d *delivery) *watch.Event {
	is := w.matches(d.key, d.object, &d.current, d.attributesOf)
	was := w.matches(d.key, d.previous, &d.old, d.attributesOf)
	switch {
	case is && was:
		return &watch.Event{Type: watch.Modified, Object: d.present(w.inside)}
	case is:
		return &watch.Event{Type: watch.Added, Object: d.present(w.inside)}
	case was:
		return &watch.Event{Type: watch.Deleted, Object: d.absent(w.inside)}
	}
	return nil
}

func (w *watcher) matches(key string, e *entry, known *attributes, attributesOf storage.AttrFunc) bool {
	if e == nil || !pathkey.HasPathPrefix(key, w.key) {
		return false
	}
	ok, err := matches(w.predicate, e, known, attributesOf)
	if err != nil {
		klog.ErrorS(err, "Failed to match an object with a watch", "resource", w.cache.GroupResource, "key", key)
	}
	return ok
}

// send tells an event, and says whether there may be more.
func (w *watcher) send(ctx context.Context, e *watch.Event) bool {
	if e == nil {
		return true
	}
	select {
	case <-w.done:
		return false
	default:
	}
	select {
	case w.result <- *e:
		return true
	case <-w.done:
		return false
	case <-ctx.Done():
		return false
	}
}
