package hotstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/ptr"
)

// insideSlack is how many times as far behind a watch inside of the process may be.
const insideSlack = 10

type insideKey struct{}

// Inside marks who watches from within the process, changes no object that it is told of,
// and encodes none. It gets the very objects that the cache holds.
func Inside(ctx context.Context) context.Context { return context.WithValue(ctx, insideKey{}, true) }

func isInside(ctx context.Context) bool { return ctx.Value(insideKey{}) != nil }

// Watch implements storage.Interface.
func (c *Cache) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.WatchList) {
		options.SendInitialEvents = nil
	}
	key, err := storage.PrepareKey(c.ResourcePrefix, key, options.Recursive)
	if err != nil {
		return nil, err //nolint:wrapcheck // As the library's.
	}
	revision, err := c.versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, err //nolint:wrapcheck // As the library's.
	}
	c.mu.RLock()
	err = c.notReady()
	c.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	// From here on errors are told as an event, as by a database that is watched itself.
	if options.ResourceVersion == "" && options.SendInitialEvents != nil {
		if revision, err = c.Storage.GetCurrentResourceVersion(ctx); err != nil {
			return failed(err), nil
		}
	}
	if ptr.Deref(options.SendInitialEvents, false) {
		if err := c.waitUntil(ctx, revision); err != nil {
			return failed(err), nil
		}
	}
	if goesOn := revision > 0 && !ptr.Deref(options.SendInitialEvents, false); goesOn {
		if err := c.refuseFuture(ctx, revision); err != nil {
			return failed(err), nil
		}
	}
	w := newWatcher(ctx, c, key, options)
	if err := c.join(w, revision, options); err != nil {
		return failed(err), nil
	}
	go w.run(ctx)
	return w, nil
}

// refuseFuture refuses to go on after a revision that the database has not reached, as one may have seen whose database
// was lost and replaced by an older one: it would wait in silence until that number is given out again.
func (c *Cache) refuseFuture(ctx context.Context, revision uint64) error {
	if revision <= c.at() {
		return nil
	}
	now, err := c.Storage.GetCurrentResourceVersion(ctx)
	if err == nil && revision > now {
		err = apierrors.NewResourceExpired(fmt.Sprintf("too large resource version: %d (%d)", revision, now))
	}
	return err //nolint:wrapcheck // As the library's.
}

// join makes the watcher one that is told, from the moment on up to which it knows all by
// what it is given here.
func (c *Cache) join(w *watcher, revision uint64, options storage.ListOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ready {
		w.end() // It went unready meanwhile, when all watches end.
		return nil
	}
	w.after = revision
	begins := ptr.Deref(options.SendInitialEvents, revision == 0)
	switch {
	case begins:
		w.initial = c.initial(w, options)
		w.after = max(revision, c.revision)
		if options.SendInitialEvents != nil && w.bookmarks {
			w.initialEnd = c.revision
		}
	case revision == 0:
		w.after = c.revision
	default:
		missed, err := c.missed(w, revision)
		if err != nil {
			return err
		}
		w.missed = missed
		if c.Renewal != nil {
			w.renewed = c.renewedSince(w.key, revision)
		}
	}
	c.watchers.add(w)
	return nil
}

// missed returns what a watcher is told first that goes on after a revision. The lock is held.
func (c *Cache) missed(w *watcher, revision uint64) ([]*event, error) {
	missed, tooOld := c.history.since(revision)
	if tooOld == nil || !w.triggerOnly() {
		return missed, tooOld
	}
	// A rollout on a large fleet fills the history within a second, and a server that ends in it sends each node here.
	found, err := c.objects.ByIndex(storage.FieldIndex(c.triggerField), w.trigger)
	if err != nil {
		return nil, fmt.Errorf("find the objects whose %s is %q: %w", c.triggerField, w.trigger, err)
	}
	return c.departed.and(found, w.trigger, revision, c.versioner)
}

// initial returns how to find what is there for a new watcher. The lock is held; what it
// returns needs none.
func (c *Cache) initial(w *watcher, options storage.ListOptions) func() ([]any, error) {
	_, single := options.Predicate.MatchesSingle()
	if single && !options.Recursive {
		element, ok, err := c.objects.GetByKey(w.key)
		return func() ([]any, error) {
			if err != nil || !ok {
				return nil, err //nolint:wrapcheck // It has no cause.
			}
			return []any{element}, nil
		}
	}
	if w.triggered {
		if found, err := c.objects.ByIndex(storage.FieldIndex(c.triggerField), w.trigger); err == nil {
			return func() ([]any, error) { return below(found, w.key), nil }
		}
	}
	all := c.objects.Clone()
	return func() ([]any, error) {
		found, err := all.OrderedListPrefix(w.key, "")
		return found, err //nolint:wrapcheck // It has no cause.
	}
}

// scope is the part of the objects that a watcher is for.
type scope struct{ namespace, name string }

func scopeOf(ctx context.Context, p storage.SelectionPredicate) (out scope) {
	if namespace, ok := request.NamespaceFrom(ctx); ok && namespace != "" {
		out.namespace = namespace
	} else if namespace, ok := p.Field.RequiresExactMatch("metadata.namespace"); ok {
		out.namespace = namespace
	}
	if info, ok := request.RequestInfoFrom(ctx); ok && info != nil && info.Name != "" {
		out.name = info.Name
	} else if name, ok := p.Field.RequiresExactMatch("metadata.name"); ok {
		out.name = name
	}
	return out
}

// watchers are those who watch, so ordered that an event finds whom it may concern.
type watchers struct {
	byScope   map[scope]map[*watcher]struct{}
	byTrigger map[string]map[*watcher]struct{}
}

func newWatchers() watchers {
	return watchers{byScope: map[scope]map[*watcher]struct{}{}, byTrigger: map[string]map[*watcher]struct{}{}}
}

func (ws watchers) add(w *watcher) {
	if w.triggered {
		insert(ws.byTrigger, w.trigger, w)
		return
	}
	insert(ws.byScope, w.scope, w)
}

func (ws watchers) remove(w *watcher) {
	if w.triggered {
		drop(ws.byTrigger, w.trigger, w)
		return
	}
	drop(ws.byScope, w.scope, w)
}

func insert[K comparable](sets map[K]map[*watcher]struct{}, key K, w *watcher) {
	if sets[key] == nil {
		sets[key] = map[*watcher]struct{}{}
	}
	sets[key][w] = struct{}{}
}

func drop[K comparable](sets map[K]map[*watcher]struct{}, key K, w *watcher) {
	delete(sets[key], w)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}

func (ws watchers) each(f func(*watcher)) {
	for _, set := range ws.byScope {
		for w := range set {
			f(w)
		}
	}
	for _, set := range ws.byTrigger {
		for w := range set {
			f(w)
		}
	}
}

// tell gives an event to those whom it may concern. The cache's lock is held.
func (ws watchers) tell(c *Cache, e *event) {
	c.told++
	d := &delivery{event: e, order: c.told, attributesOf: c.Attributes, versioner: c.versioner}
	hand := func(set map[*watcher]struct{}) {
		for w := range set {
			slack := uint64(c.Slack)
			if w.inside { // it would list all in the busiest second, and what it waits with is held in any case
				slack *= insideSlack
			}
			w.hand(d, slack)
		}
	}
	namespace, name := c.placeOf(e)
	for _, s := range scopes(namespace, name) {
		hand(ws.byScope[s])
	}
	if len(ws.byTrigger) == 0 {
		return
	}
	before, after := c.triggerValue(e.previous), c.triggerValue(e.object)
	if e.object != nil {
		hand(ws.byTrigger[after])
	}
	if e.previous != nil && (e.object == nil || before != after) {
		hand(ws.byTrigger[before])
	}
}

func scopes(namespace, name string) []scope {
	out := make([]scope, 0, 4)
	out = append(out, scope{})
	if namespace != "" {
		out = append(out, scope{namespace: namespace})
	}
	if name != "" {
		out = append(out, scope{name: name})
		if namespace != "" {
			out = append(out, scope{namespace: namespace, name: name})
		}
	}
	return out
}

func (c *Cache) placeOf(e *event) (namespace, name string) {
	of := e.object
	if of == nil {
		of = e.previous
	}
	m, ok := of.Object.(metav1.Object)
	if !ok {
		return "", ""
	}
	return m.GetNamespace(), m.GetName()
}

func (c *Cache) triggerValue(e *entry) string {
	if e == nil || c.triggerOf == nil {
		return ""
	}
	return c.triggerOf(e.Object)
}

// failed is a watch that tells an error and ends.
func failed(err error) watch.Interface {
	w := watch.NewFakeWithChanSize(1, false)
	var status apierrors.APIStatus
	object := &metav1.Status{
		Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonInternalError,
		Code: http.StatusInternalServerError,
	}
	if errors.As(err, &status) {
		told := status.Status()
		object = &told
	}
	w.Error(object)
	w.Stop()
	return w
}

// elements turns what an index holds into events of objects that are there.
func elements(items []any, at uint64) []*event {
	out := make([]*event, len(items))
	for i, item := range items {
		e := item.(*store.Element)
		out[i] = &event{key: e.Key, revision: at, object: e.Object.(*entry)}
	}
	return out
}

// bookmark is an empty object with a version.
func (c *Cache) bookmark(revision uint64, endsInitial bool) (runtime.Object, error) {
	object := c.New()
	if err := c.versioner.UpdateObject(object, revision); err != nil {
		return nil, err //nolint:wrapcheck // It cannot fail for objects with metadata.
	}
	if endsInitial {
		if err := storage.AnnotateInitialEventsEndBookmark(object); err != nil {
			return nil, err //nolint:wrapcheck // It cannot fail for objects with metadata.
		}
	}
	return object, nil
}
