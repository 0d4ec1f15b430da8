package referred

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// patience is how long an object is waited for that begins to be watched, before it is read live.
const patience = 2 * time.Second

// Cache keeps objects. It is safe for concurrent use.
type Cache struct {
	ctx    context.Context //nolint:containedctx // the lifetime of the watches, given to New
	client kubernetes.Interface

	mu    sync.Mutex
	pods  map[types.UID]map[key]bool
	items map[key]*item
	// recalled are objects as they were in an earlier run; they count until they are seen in this one.
	recalled map[key]any
	// changed is told when an object that is watched changes; nil for nobody.
	changed func()
}

// item is an object that is watched.
type item struct {
	store  cache.Store
	synced func() bool
	// began is when the watch began.
	began time.Time
	// users are how many pods refer to it.
	users int
	stop  context.CancelFunc
}

// New returns an empty Cache, whose watches end with ctx.
func New(ctx context.Context, client kubernetes.Interface) *Cache {
	return &Cache{ctx: ctx, client: client, pods: map[types.UID]map[key]bool{}, items: map[key]*item{}}
}

// Recall has these objects, known from an earlier run, stand for those that the API server does not answer for; a pod
// must refer to them. Changed is told when something may be worth to be remembered; it must not block. Call it before
// anything else.
func (c *Cache) Recall(configMaps []*corev1.ConfigMap, secrets []*corev1.Secret, changed func()) {
	c.changed, c.recalled = changed, map[key]any{}
	for _, o := range configMaps {
		c.recalled[keyOf(o)] = o
	}
	for _, o := range secrets {
		c.recalled[keyOf(o)] = o
	}
}

// Known are the objects that pods refer to, as they are known now.
func (c *Cache) Known() (configMaps []*corev1.ConfigMap, secrets []*corev1.Secret) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, i := range c.items {
		obj := c.recalled[k]
		if i.synced() {
			obj, _, _ = i.store.GetByKey(k.namespace + "/" + k.name)
		}
		switch o := obj.(type) {
		case *corev1.ConfigMap:
			configMaps = append(configMaps, o)
		case *corev1.Secret:
			secrets = append(secrets, o)
		}
	}
	return configMaps, secrets
}

// Follow keeps what the pod refers to, until Forget. It may be told of the same pod again and again.
func (c *Cache) Follow(pod *corev1.Pod) {
	wanted := references(pod)
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.pods[pod.UID]
	for k := range wanted {
		if !had[k] {
			c.use(k)
		}
	}
	c.drop(had, wanted)
	c.pods[pod.UID] = wanted
	if len(wanted) == 0 {
		delete(c.pods, pod.UID)
	}
}

// Forget ends Follow.
func (c *Cache) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(c.pods[uid], nil)
	delete(c.pods, uid)
}

// use counts one more pod that refers to the object. The caller holds mu.
func (c *Cache) use(k key) {
	i := c.items[k]
	if i == nil {
		i = c.watch(k)
		c.items[k] = i
	}
	i.users++
}

// drop gives up those that were had and are not wanted any more. The caller holds mu.
func (c *Cache) drop(had, wanted map[key]bool) {
	for k := range had {
		if wanted[k] {
			continue
		}
		if i := c.items[k]; i != nil {
			i.users--
			if i.users == 0 {
				i.stop()
				delete(c.items, k)
			}
		}
	}
}

func (c *Cache) watch(k key) *item {
	ctx, cancel := context.WithCancel(c.ctx)
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, k.name).String()
	var example runtime.Object = &corev1.ConfigMap{}
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.client.CoreV1().ConfigMaps(k.namespace).List(ctx, o)
	}
	follow := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return c.client.CoreV1().ConfigMaps(k.namespace).Watch(ctx, o)
	}
	if k.kind == secrets {
		example = &corev1.Secret{}
		list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.client.CoreV1().Secrets(k.namespace).List(ctx, o)
		}
		follow = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.client.CoreV1().Secrets(k.namespace).Watch(ctx, o)
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return list(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = only
				return follow(ctx, o)
			},
		}, c.client),
		ObjectType: example, Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { c.tell() }, UpdateFunc: func(any, any) { c.tell() }, DeleteFunc: func(any) { c.tell() },
		},
		Transform: func(obj any) (any, error) {
			if o, ok := obj.(metav1.Object); ok {
				o.SetManagedFields(nil)
			}
			return obj, nil
		},
	})
	go informer.RunWithContext(ctx)
	return &item{store: store, synced: informer.HasSynced, began: time.Now(), stop: cancel}
}

func (c *Cache) tell() {
	if c.changed != nil {
		c.changed()
	}
}

// seen returns what is known of an object; ok is false while that is nothing.
func (c *Cache) seen(ctx context.Context, k key) (obj any, ok bool) {
	c.mu.Lock()
	i := c.items[k]
	c.mu.Unlock()
	if i == nil {
		return nil, false
	}
	recalled := c.recalled[k]
	deadline := time.Now().Add(patience)
	if recalled != nil {
		deadline = i.began.Add(patience)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), i.synced) {
		return recalled, recalled != nil
	}
	obj, there, err := i.store.GetByKey(k.namespace + "/" + k.name)
	if err != nil || !there {
		return nil, err == nil
	}
	return obj, true
}

// ConfigMap returns the object, which is shared and must not be changed.
func (c *Cache) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	obj, ok := c.seen(ctx, key{configMaps, namespace, name})
	if !ok {
		return c.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if found, ok := obj.(*corev1.ConfigMap); ok {
		return found, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(string(configMaps)), name)
}

// Secret returns the object, which is shared and must not be changed.
func (c *Cache) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	obj, ok := c.seen(ctx, key{secrets, namespace, name})
	if !ok {
		return c.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	if found, ok := obj.(*corev1.Secret); ok {
		return found, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(string(secrets)), name)
}
