package hotstore

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

// ListWatch returns what an informer of this process lists and watches by. The informer
// then holds the very objects that the cache holds, and must not change them.
func (c *Cache) ListWatch() cache.ListerWatcher { return inside{c} }

type inside struct{ cache *Cache }

// ListWithContext implements cache.ListerWatcherWithContext.
func (i inside) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list := i.cache.NewList()
	if err := i.cache.GetList(ctx, i.cache.ResourcePrefix, options(o), list); err != nil {
		return nil, err
	}
	return list, nil
}

// WatchWithContext implements cache.ListerWatcherWithContext. It goes on as long as the
// context does: inside a process there is no connection that could be dead unnoticed.
func (i inside) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return i.cache.Watch(Inside(ctx), i.cache.ResourcePrefix, options(o))
}

// List implements cache.ListerWatcher.
func (i inside) List(o metav1.ListOptions) (runtime.Object, error) {
	return i.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher.
func (i inside) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return i.WatchWithContext(context.Background(), o)
}

func options(o metav1.ListOptions) storage.ListOptions {
	p := storage.Everything
	p.Limit, p.Continue, p.AllowWatchBookmarks = o.Limit, o.Continue, o.AllowWatchBookmarks
	return storage.ListOptions{
		ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch, Predicate: p, Recursive: true,
		SendInitialEvents: o.SendInitialEvents,
	}
}
