package garbagecollector

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

// patienceWithAdded is how long the start, and each change, waits for the objects of
// added kinds: a server of others may never answer.
const patienceWithAdded = 10 * time.Second

// monitor watches the objects of one added kind, in one version.
type monitor struct {
	Resource
	informer toolscache.SharedIndexInformer
	synced   toolscache.InformerSynced
	stop     context.CancelFunc
	// over, under the controller's mu: what the informer still tells counts no more.
	over *bool
}

// firstAdded waits for the kinds that are there at the start; false if ctx ended
// first. An owner must not be let go before dependents of such kinds are known.
func (c *Controller) firstAdded(ctx context.Context) bool {
	if c.cfg.Added == nil {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case added := <-c.cfg.Added:
		c.setAdded(ctx, added)
		return ctx.Err() == nil
	}
}

func (c *Controller) followAdded(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case added := <-c.cfg.Added:
			c.setAdded(ctx, added)
		}
	}
}

// setAdded watches what is new, and forgets what is not there any more. Objects that are
// served in another version than before stay what they are.
func (c *Controller) setAdded(ctx context.Context, added []Resource) {
	watched, changed := c.kinds.set(added)
	wanted := make(map[schema.GroupVersionResource]bool, len(watched))
	var fresh []toolscache.InformerSynced
	for _, r := range watched {
		wanted[r.GVR] = true
		if old := c.added[r.GVR]; old != nil && old.GVK == r.GVK && old.Namespaced == r.Namespaced {
			continue
		}
		if old := c.added[r.GVR]; old != nil {
			c.drop(old)
			delete(c.added, r.GVR)
		}
		m, err := c.monitor(ctx, r)
		if err != nil {
			utilruntime.HandleErrorWithContext(
				ctx, err, "Objects of an added kind are not watched for garbage", "resource", r.GVR,
			)
			continue
		}
		c.added[r.GVR] = m
		fresh = append(fresh, m.synced)
	}
	bounded, cancel := context.WithTimeout(ctx, patienceWithAdded)
	if !toolscache.WaitForCacheSync(bounded.Done(), fresh...) && ctx.Err() == nil {
		klog.FromContext(ctx).Info(
			"Not all objects of added kinds could be listed; going on without them", "after", patienceWithAdded,
		)
	}
	cancel()
	for gvr, m := range c.added {
		if !wanted[gvr] {
			c.drop(m)
			delete(c.added, gvr)
		}
	}
	c.update(func(g *graph.Graph) { g.Recheck(changed) })
}

// monitor starts to watch a kind.
func (c *Controller) monitor(ctx context.Context, r Resource) (*monitor, error) {
	ctx, cancel := context.WithCancel(ctx)
	m := &monitor{Resource: r, stop: cancel, over: new(bool)}
	m.informer = metadatainformer.NewFilteredMetadataInformer(
		c.cfg.Metadata, r.GVR, metav1.NamespaceAll, 0, toolscache.Indexers{}, nil,
	).Informer()
	if err := m.informer.SetTransform(onlyOwnership); err != nil {
		cancel()
		return nil, err
	}
	apiVersion, kind := r.GVK.GroupVersion().String(), r.GVK.Kind
	registration, err := m.informer.AddEventHandler(c.handler(apiVersion, kind, m.over))
	if err != nil {
		cancel()
		return nil, err
	}
	m.synced = registration.HasSynced
	go m.informer.RunWithContext(ctx)
	return m, nil
}

// drop stops watching. What the informer does not hold any more was deleted, also if it did not
// come to tell so. What it holds may be there still, though nobody can see it now: its kind comes
// back, or it is shown in another version already, and then the graph does not know it by this one.
func (c *Controller) drop(m *monitor) {
	m.stop()
	held := map[types.UID]bool{}
	for _, obj := range m.informer.GetStore().List() {
		if accessor, err := meta.Accessor(obj); err == nil {
			held[accessor.GetUID()] = true
		}
	}
	apiVersion, kind := m.GVK.GroupVersion().String(), m.GVK.Kind
	c.update(func(g *graph.Graph) {
		*m.over = true
		g.EndKind(apiVersion, kind, func(uid types.UID) bool { return held[uid] })
	})
}

// onlyOwnership keeps of an object what the graph asks for.
func onlyOwnership(obj any) (any, error) {
	object, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{
		TypeMeta: object.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: object.Name, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion,
			OwnerReferences: object.OwnerReferences, Finalizers: object.Finalizers, DeletionTimestamp: object.DeletionTimestamp,
		},
	}, nil
}
