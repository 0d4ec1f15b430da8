package nodelifecycle

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/objects/pod"
)

// Handlers only translate events for the tracker.

func (c *controller) nodeHandler(started time.Time) toolscache.ResourceEventHandler {
	observe := func(node *corev1.Node) {
		c.change(func() { c.tracker.Observe(node, c.cfg.Clock.Now()) })
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			node := obj.(*corev1.Node)
			observe(node)
			if node.CreationTimestamp.After(started) {
				c.event(
					node, corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", node.Name,
					node.Name,
				)
			}
		},
		UpdateFunc: func(_, obj any) { observe(obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) {
			if node, ok := deleted[*corev1.Node](obj); ok {
				c.change(func() { c.tracker.Forget(node.Name) })
				c.event(
					node, corev1.EventTypeNormal, "RemovingNode", "Node %s event: Removing Node %s from Controller", node.Name,
					node.Name,
				)
			}
		},
	}
}

func (c *controller) leaseHandler() toolscache.ResourceEventHandler {
	renew := func(obj any) {
		lease := obj.(*coordinationv1.Lease)
		if lease.Namespace != corev1.NamespaceNodeLease || lease.Spec.RenewTime == nil {
			return
		}
		c.change(func() { c.tracker.Renew(lease.Name, lease.Spec.RenewTime.Time, c.cfg.Clock.Now()) })
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    renew,
		UpdateFunc: func(_, obj any) { renew(obj) },
	}
}

func (c *controller) podHandler() toolscache.ResourceEventHandler {
	observe := func(p *corev1.Pod) {
		if p.Spec.NodeName == "" {
			return
		}
		key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		c.change(func() {
			keys := c.pods[p.Spec.NodeName]
			if keys == nil {
				keys = map[types.NamespacedName]struct{}{}
				c.pods[p.Spec.NodeName] = keys
			}
			keys[key] = struct{}{}
			if pod.IsReady(p) {
				c.tracker.PodReady(p.Spec.NodeName)
			}
		})
	}
	forget := func(p *corev1.Pod) {
		c.change(func() {
			keys := c.pods[p.Spec.NodeName]
			delete(keys, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
			if len(keys) == 0 {
				delete(c.pods, p.Spec.NodeName)
			}
		})
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { observe(obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) {
			if before := old.(*corev1.Pod); before.UID != obj.(*corev1.Pod).UID {
				forget(before) // deleted and made again unseen
			}
			observe(obj.(*corev1.Pod))
		},
		DeleteFunc: func(obj any) {
			if p, ok := deleted[*corev1.Pod](obj); ok {
				forget(p)
			}
		},
	}
}

// deleted unwraps an object whose deletion itself was not seen.
func deleted[T any](obj any) (T, bool) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	object, ok := obj.(T)
	return object, ok
}
