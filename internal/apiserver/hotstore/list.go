package hotstore

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/delegator"
	pathkey "k8s.io/apiserver/pkg/storage/cacher/key"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Get implements storage.Interface. Without a version it asks the database.
func (c *Cache) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if options.ResourceVersion == "" || !c.Ready() {
		if err := c.Storage.Get(ctx, key, options, out); err != nil {
			return err //nolint:wrapcheck // The registry knows these errors.
		}
		return c.freshen(out)
	}
	key, err := storage.PrepareKey(c.ResourcePrefix, key, false)
	if err != nil {
		return err //nolint:wrapcheck // As the library's.
	}
	revision, err := c.versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return err //nolint:wrapcheck // As the library's.
	}
	v, err := conversion.EnforcePtr(out)
	if err != nil {
		return fmt.Errorf("unable to convert output object to pointer: %w", err)
	}
	if err := c.waitUntil(ctx, revision); err != nil {
		return err
	}
	c.mu.RLock()
	element, ok, err := c.objects.GetByKey(key)
	at := c.revision
	c.mu.RUnlock()
	switch {
	case err != nil:
		return fmt.Errorf("look up %s: %w", key, err)
	case ok:
		v.Set(reflect.ValueOf(entryOf(element).Object).Elem())
		return nil
	}
	v.SetZero()
	if !options.IgnoreNotFound {
		return storage.NewKeyNotFoundError(key, int64(at))
	}
	return nil
}

// GetList implements storage.Interface. Old versions, and the further pages of a list,
// are read from the database; what was renewed in memory is put in.
func (c *Cache) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	return c.getList(ctx, key, options, list, false)
}

// getList lists what was renewed in memory or, if stored is set, the versions that the database holds.
func (c *Cache) getList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object,
	stored bool) error {
	if _, _, err := storage.ValidateListOptions(c.ResourcePrefix, c.versioner, options); err != nil {
		return err //nolint:wrapcheck // As the library's.
	}
	way, err := delegator.ShouldDelegateList(options, delegator.CacheWithoutSnapshots{})
	if err != nil {
		return err //nolint:wrapcheck // As the library's.
	}
	if way.ShouldDelegate || !c.Ready() && isSmall(options.Predicate) {
		err := c.Storage.GetList(ctx, key, options, list)
		if err != nil || stored || c.Renewal == nil {
			return err //nolint:wrapcheck // The registry knows these errors.
		}
		return meta.EachListItem(list, c.freshen) //nolint:wrapcheck // It says what it is.
	}
	key, err = storage.PrepareKey(c.ResourcePrefix, key, options.Recursive)
	if err != nil {
		return err //nolint:wrapcheck // As the library's.
	}
	err = c.list(ctx, key, options, list, stored)
	if !way.ConsistentRead {
		return err
	}
	success, fallback := "true", "false"
	if storage.IsTooLargeResourceVersion(err) {
		fallback = "true"
		err = c.Storage.GetList(ctx, key, options, list)
	}
	if err != nil {
		success = "false"
	}
	metrics.ConsistentReadTotal.WithLabelValues(c.GroupResource.Group, c.GroupResource.Resource, success, fallback).Add(1)
	return err
}

// isSmall says whether the database may be asked while nothing is loaded.
func isSmall(p storage.SelectionPredicate) bool {
	return (p.Label == nil || p.Label.Empty()) && (p.Field == nil || p.Field.Empty()) && p.Limit > 0
}

func (c *Cache) list(ctx context.Context, key string, options storage.ListOptions, list runtime.Object,
	stored bool) error {
	revision, err := c.versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return err //nolint:wrapcheck // As the library's.
	}
	c.mu.RLock()
	err = c.notReady()
	c.mu.RUnlock()
	if err != nil {
		return err
	}
	if options.ResourceVersionMatch == "" && options.ResourceVersion == "" {
		if revision, err = c.Storage.GetCurrentResourceVersion(ctx); err != nil {
			return err //nolint:wrapcheck // It is the library's.
		}
	}
	if err := c.waitUntil(ctx, revision); err != nil {
		return err
	}
	c.mu.RLock()
	at := c.revision
	candidates, index := c.candidates(ctx, key, options)
	c.mu.RUnlock()
	items, err := candidates()
	if err != nil {
		return err
	}
	chosen, more, err := choose(items, c.Attributes, options)
	if err != nil {
		return err
	}
	count, last, err := fill(list, chosen)
	if err == nil && stored {
		err = asStored(list, chosen)
	}
	if err != nil {
		return err
	}
	next, remaining, err := storage.PrepareContinueToken(last, key, int64(at), int64(len(items)), more, options)
	if err != nil {
		return err //nolint:wrapcheck // As the library's.
	}
	if err := c.versioner.UpdateList(list, at, next, remaining); err != nil {
		return err //nolint:wrapcheck // As the library's.
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		options.Predicate.SetShardInfoOnList(list)
	}
	metrics.RecordListCacheMetrics(c.GroupResource, index, len(items), count)
	return nil
}

// candidates returns how to find all objects below a key that may be chosen, in the order
// of keys, and by which index. The lock is held; what it returns needs none.
func (c *Cache) candidates(ctx context.Context, key string,
	options storage.ListOptions) (func() ([]any, error), string) {
	if !options.Recursive {
		element, ok, err := c.objects.GetByKey(key)
		return func() ([]any, error) {
			if err != nil || !ok {
				return nil, err //nolint:wrapcheck // It has no cause.
			}
			return []any{element}, nil
		}, ""
	}
	for _, match := range options.Predicate.MatcherIndex(ctx) {
		found, err := c.objects.ByIndex(match.IndexName, match.Value)
		if err != nil {
			continue // There is no such index.
		}
		return func() ([]any, error) { return below(found, key), nil }, match.IndexName
	}
	all := c.objects.Clone()
	return func() ([]any, error) { return all.OrderedListPrefix(key, "") }, ""
}

// below returns those whose keys begin so, in the order of keys.
func below(elements []any, prefix string) []any {
	out := make([]any, 0, len(elements))
	for _, e := range elements {
		if pathkey.HasPathPrefix(e.(*store.Element).Key, prefix) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b any) int { return strings.Compare(a.(*store.Element).Key, b.(*store.Element).Key) })
	return out
}

// choose returns those that the predicate matches, and whether there may be more.
func choose(items []any, attributesOf storage.AttrFunc,
	options storage.ListOptions) (out []*store.Element, more bool, err error) {
	limit := int(options.Predicate.Limit)
	if options.ResourceVersion == "0" {
		limit = 0 // Clients of old are used to getting all.
	}
	everything := options.Predicate.Empty()
	if everything {
		out = make([]*store.Element, 0, len(items))
	}
	for i, item := range items {
		element := item.(*store.Element)
		if !everything {
			ok, err := matches(options.Predicate, element.Object.(*entry), &attributes{}, attributesOf)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				continue
			}
		}
		out = append(out, element)
		if limit > 0 && len(out) >= limit {
			return out, i < len(items)-1, nil
		}
	}
	return out, false, nil
}

// matches says whether a predicate matches an object.
func matches(p storage.SelectionPredicate, e *entry, known *attributes, attributesOf storage.AttrFunc) (bool, error) {
	if utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		if ok, err := p.MatchesSharding(e.Object); err != nil || !ok {
			return false, err //nolint:wrapcheck // As the library's.
		}
	}
	if p.Empty() {
		return true, nil
	}
	labels, fields, err := known.get(e, attributesOf)
	if err != nil {
		return false, err
	}
	return p.MatchesObjectAttributes(labels, fields), nil
}

// fill puts objects into a list. They share all but their outermost fields with the cache.
func fill(list runtime.Object, chosen []*store.Element) (count int, last string, err error) {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return 0, "", fmt.Errorf("find the items of the list: %w", err)
	}
	v, err := conversion.EnforcePtr(items)
	if err != nil {
		return 0, "", fmt.Errorf("find the items of the list: %w", err)
	}
	if v.Kind() != reflect.Slice {
		return 0, "", fmt.Errorf("need a pointer to slice, got %v", v.Kind())
	}
	v.Set(reflect.MakeSlice(v.Type(), len(chosen), len(chosen)))
	for i, element := range chosen {
		v.Index(i).Set(reflect.ValueOf(element.Object.(*entry).Object).Elem())
		last = element.Key
	}
	return len(chosen), last, nil
}
