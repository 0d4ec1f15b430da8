package referred

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
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
	// recalled are objects as they were in an earlier run, none of them immutable; they count until they are seen in
	// this one.
	recalled map[key]any
	// changed is told when an object that is watched changes; nil for nobody.
	changed func()
}

// item is an object that is watched, or immutable.
type item struct {
	store  cache.Store
	synced func() bool
	// kept is the object once it was read as immutable; it is not watched any more. Nothing waits here: the watch holds
	// locks of its own while it tells.
	kept atomic.Pointer[any]
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
// must refer to them. Immutable ones stay as they are while one of these pods, which ran then, refers to them: each
// pod is to be told to Forget. Changed is told when something may be worth to be remembered; it must not block. Call it
// before anything else; a second call adds to the first.
func (c *Cache) Recall(pods []*corev1.Pod, configMaps []*corev1.ConfigMap, secrets []*corev1.Secret, changed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = changed
	if c.recalled == nil {
		c.recalled = map[key]any{}
	}
	fixed := map[key]any{}
	add := func(o any) {
		if immutable(o) {
			fixed[keyOf(o)] = o
		} else {
			c.recalled[keyOf(o)] = o
		}
	}
	for _, o := range configMaps {
		add(o)
	}
	for _, o := range secrets {
		add(o)
	}
	for _, pod := range pods {
		had := references(pod)
		maps.DeleteFunc(had, func(k key, _ bool) bool { return fixed[k] == nil || c.pods[pod.UID][k] })
		for k := range had {
			if c.items[k] == nil {
				c.items[k] = keptItem(fixed[k])
			}
			c.use(k)
		}
		maps.Copy(had, c.pods[pod.UID])
		if len(had) > 0 {
			c.pods[pod.UID] = had
		}
	}
}

func keptItem(obj any) *item {
	i := &item{stop: func() {}}
	i.kept.Store(&obj)
	return i
}

// keep has the item be obj for good if that is immutable and it was not yet something, and returns what it is for good;
// nil for nothing.
func (c *Cache) keep(i *item, obj any) any {
	if immutable(obj) && i.kept.CompareAndSwap(nil, &obj) {
		i.stop()
		c.tell()
	}
	if kept := i.kept.Load(); kept != nil {
		return *kept
	}
	return nil
}

// Known are the objects that pods refer to, as they are known now.
func (c *Cache) Known() (configMaps []*corev1.ConfigMap, secrets []*corev1.Secret) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, i := range c.items {
		obj := c.recalled[k]
		if kept := i.kept.Load(); kept != nil {
			obj = *kept
		} else if i.synced() {
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
	i := &item{began: time.Now(), stop: cancel}
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
			AddFunc: func(obj any) { c.saw(k, i, obj) }, UpdateFunc: func(_, obj any) { c.saw(k, i, obj) },
			DeleteFunc: func(any) { c.tell() },
		},
		Transform: func(obj any) (any, error) {
			if o, ok := obj.(metav1.Object); ok {
				o.SetManagedFields(nil)
			}
			return obj, nil
		},
	})
	i.store = store
	i.synced = func() bool { return i.kept.Load() != nil || informer.HasSynced() }
	go informer.RunWithContext(ctx)
	return i
}

// saw is told of each state of the object, before the watch takes in the next one.
func (c *Cache) saw(k key, i *item, obj any) {
	if keyOf(obj) == k {
		c.keep(i, obj)
	}
	c.tell()
}

func (c *Cache) tell() {
	if c.changed != nil {
		c.changed()
	}
}

// seen returns what is known of an object; ok is false while that is nothing.
func (c *Cache) seen(ctx context.Context, k key, i *item) (obj any, ok bool) {
	if kept := c.keep(i, nil); kept != nil {
		return kept, true
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
	// What is kept was first, if there is anything: the store may hold what came after it.
	if kept := c.keep(i, obj); kept != nil {
		return kept, true
	}
	if err != nil || !there {
		return nil, err == nil
	}
	return obj, true
}

// read returns the object as it is known, or else as live reads it.
func read[T metav1.Object](ctx context.Context, c *Cache, k key,
	live func(context.Context, string, metav1.GetOptions) (T, error)) (found T, err error) {
	c.mu.Lock()
	i := c.items[k]
	c.mu.Unlock()
	if i == nil {
		return live(ctx, k.name, metav1.GetOptions{})
	}
	obj, ok := c.seen(ctx, k, i)
	if !ok {
		if found, err = live(ctx, k.name, metav1.GetOptions{}); err != nil {
			return found, err
		}
		found.SetManagedFields(nil)
		if obj = c.keep(i, found); obj == nil {
			return found, nil
		}
	}
	if found, ok = obj.(T); ok {
		return found, nil
	}
	return found, apierrors.NewNotFound(corev1.Resource(string(k.kind)), k.name)
}

// ConfigMap returns the object, which is shared and must not be changed.
func (c *Cache) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return read(ctx, c, key{configMaps, namespace, name}, c.client.CoreV1().ConfigMaps(namespace).Get)
}

// Secret returns the object, which is shared and must not be changed.
func (c *Cache) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return read(ctx, c, key{secrets, namespace, name}, c.client.CoreV1().Secrets(namespace).Get)
}
