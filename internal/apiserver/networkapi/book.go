package networkapi

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/filtered"
	"github.com/everynode/everynode/internal/apiserver/networkapi/journal"
	"github.com/everynode/everynode/internal/node/peer"
)

// remembered is how many changes are kept for watches that were cut off. Nodes join,
// leave and move seldom, so it lasts long.
const remembered = 4096

// Nodes is the server's own storage of them.
type Nodes interface {
	rest.Lister
	rest.Watcher
}

// book is the journal for many readers and one writer, a reflector.
type book struct {
	mu      sync.RWMutex
	journal *journal.Journal
	// changed is closed, and made again, when there is news.
	changed chan struct{}
	// full is closed once all nodes were read.
	full chan struct{}
}

var (
	_ cache.ReflectorStore         = &book{}
	_ cache.ResourceVersionUpdater = &book{}
)

func newBook() *book {
	return &book{journal: journal.New(remembered), changed: make(chan struct{}), full: make(chan struct{})}
}

// follow reads the nodes until ctx ends.
func (b *book) follow(ctx context.Context, nodes Nodes) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			options, err := inside(&o)
			if err != nil {
				return nil, err
			}
			return nodes.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			options, err := inside(&o)
			if err != nil {
				return nil, err
			}
			w, err := nodes.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return filtered.Watch(w, plain), nil
		},
	}
	cache.NewReflectorWithOptions(source, &corev1.Node{}, b, cache.ReflectorOptions{Name: "the networks of all nodes"}).
		RunWithContext(ctx)
}

func inside(o *metav1.ListOptions) (*metainternalversion.ListOptions, error) {
	out := &metainternalversion.ListOptions{}
	if err := metainternalversion.Convert_v1_ListOptions_To_internalversion_ListOptions(o, out, nil); err != nil {
		return nil, fmt.Errorf("read the options of a list: %w", err)
	}
	return out, nil
}

// plain takes a Node out of the form that the server's watch cache hands to several
// watches at once.
func plain(e watch.Event) watch.Event {
	if shared, ok := e.Object.(runtime.CacheableObject); ok {
		e.Object = shared.GetObject()
	}
	return e
}

// change has a node written down, and tells who waits.
func (b *book) change(obj any, write func(*peer.Node) (bool, error)) error {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return fmt.Errorf("got a %T in place of a node", obj)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	news, err := write(peer.Of(n))
	if news {
		b.tell()
	}
	return err
}

// tell wakes who waits; the lock is held.
func (b *book) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Add implements cache.ReflectorStore.
func (b *book) Add(obj any) error { return b.change(obj, b.journal.Put) }

// Update implements cache.ReflectorStore.
func (b *book) Update(obj any) error { return b.change(obj, b.journal.Put) }

// Delete implements cache.ReflectorStore.
func (b *book) Delete(obj any) error { return b.change(obj, b.journal.Remove) }

// Replace implements cache.ReflectorStore.
func (b *book) Replace(all []any, resourceVersion string) error {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("the version of a list of nodes: %w", err)
	}
	nodes := make([]*peer.Node, 0, len(all))
	for _, obj := range all {
		n, ok := obj.(*corev1.Node)
		if !ok {
			return fmt.Errorf("got a %T in place of a node", obj)
		}
		nodes = append(nodes, peer.Of(n))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.journal.Replace(nodes, version); err != nil {
		return err
	}
	select {
	case <-b.full:
	default:
		close(b.full)
	}
	b.tell()
	return nil
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: everything up to there
// was seen.
func (b *book) UpdateResourceVersion(resourceVersion string) {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		klog.Background().Error(err, "A bookmark of the nodes has no version")
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journal.Reach(version)
}

// Resync implements cache.ReflectorStore; nothing is to be told again.
func (b *book) Resync() error { return nil }

// all are all nodes, and up to which version everything is in them.
func (b *book) all() ([]*journal.Node, uint64) {
	b.mu.Lock() // The journal notes that its nodes were given away.
	defer b.mu.Unlock()
	return b.journal.Nodes(), b.journal.Version()
}

// since is what changed after a version, false if that is not known; what will be closed
// when there is more; and up to which version everything is in it.
func (b *book) since(version uint64) (events []journal.Event, known bool, more <-chan struct{}, reached uint64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	events, known = b.journal.Since(version)
	return events, known, b.changed, b.journal.Version()
}
