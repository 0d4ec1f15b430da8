package nodestartup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// watch takes note of what there is. Handlers get the object as it is, and as it was; nil for none.
func (c *controller) watch(ctx context.Context) ([]toolscache.InformerSynced, error) {
	sources := []struct {
		object client.Object
		on     func(old, obj any)
	}{
		{&corev1.Node{}, func(old, obj any) { c.onNode(as[corev1.Node](old), as[corev1.Node](obj)) }},
		{&corev1.Pod{}, func(old, obj any) { c.onPod(as[corev1.Pod](old), as[corev1.Pod](obj)) }},
		{&appsv1.DaemonSet{}, func(old, obj any) {
			c.onDaemonSet(as[appsv1.DaemonSet](old), as[appsv1.DaemonSet](obj))
		}},
		{&v1alpha1.NodeStartup{}, func(old, obj any) {
			c.onStartup(ctx, as[v1alpha1.NodeStartup](old), as[v1alpha1.NodeStartup](obj))
		}},
	}
	var synced []toolscache.InformerSynced
	for _, s := range sources {
		informer, err := c.informers.GetInformer(ctx, s.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T for node startup: %w", s.object, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.on(nil, obj) },
			UpdateFunc: s.on,
			DeleteFunc: func(obj any) {
				if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
					obj = unknown.Obj
				}
				s.on(obj, nil)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch %T for node startup: %w", s.object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

func as[T any](obj any) *T {
	typed, _ := obj.(*T)
	return typed
}

func (c *controller) onNode(old, n *corev1.Node) {
	if n == nil {
		if old == nil {
			return
		}
		c.mu.Lock()
		delete(c.starting, old.Name)
		c.arrivals.Forget(old.UID)
		c.mu.Unlock()
		c.tell()
		return
	}
	gate := nodestartup.TaintOf(n.Spec.Taints)
	c.mu.Lock()
	if gate == nil {
		delete(c.starting, n.Name)
	} else {
		place, _ := nodestartup.PlaceOf(gate.Value)
		if s := c.starting[n.Name]; s == nil || s.startup != place.Startup || old != nil && old.UID != n.UID {
			c.starting[n.Name] = &starting{startup: place.Startup, ahead: plan.Ahead{}}
		}
	}
	counted := len(c.startups) > 0
	c.arrive(old, n)
	c.mu.Unlock()
	if gate != nil || counted && c.mayBeDue(old, n) {
		c.queue.Add(n.Name)
	}
	if counted && (old == nil || !sameForStatus(old, n)) {
		c.tell()
	}
}

// arrive takes note of a node that has come and that nobody has dealt with; c.mu is held.
func (c *controller) arrive(old, n *corev1.Node) {
	if old != nil && old.UID != n.UID {
		c.arrivals.Forget(old.UID)
	}
	if _, marked := nodestartup.MarkOf(n); marked {
		c.arrivals.Forget(n.UID)
	} else if c.cfg.Marker != nil && c.watches && len(c.startups) > 0 && (old == nil || old.UID != n.UID) {
		c.arrivals.Node(n.UID, c.cfg.Clock.Now())
	}
}

// sameForStatus reports whether nothing changed of a node that statuses count.
func sameForStatus(old, n *corev1.Node) bool {
	was, is := nodestartup.TaintOf(old.Spec.Taints), nodestartup.TaintOf(n.Spec.Taints)
	return (was == nil) == (is == nil) && (was == nil || was.Value == is.Value) && maps.Equal(old.Labels, n.Labels) &&
		old.Annotations[nodestartup.WithoutAnnotation] == n.Annotations[nodestartup.WithoutAnnotation] &&
		old.Annotations[nodestartup.NotClosedAnnotation] == n.Annotations[nodestartup.NotClosedAnnotation]
}

func (c *controller) onPod(old, p *corev1.Pod) {
	if p == nil {
		p = old
	} else if old != nil && old.Spec.NodeName == "" {
		old = nil
	}
	node := daemonOn(p)
	if node == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.startups) == 0 {
		return
	}
	if p == old {
		delete(c.pods[node], keyOf(p))
		if len(c.pods[node]) == 0 {
			delete(c.pods, node)
		}
	} else {
		c.note(node, keyOf(p))
	}
	if c.starting[node] != nil {
		c.queue.Add(node)
	}
}

// note takes note of a daemon's pod; c.mu is held.
func (c *controller) note(node string, pod types.NamespacedName) {
	if c.pods[node] == nil {
		c.pods[node] = map[types.NamespacedName]struct{}{}
	}
	c.pods[node][pod] = struct{}{}
}

// daemonOn returns the node that a daemon's pod is on; "" if it is none, or on none.
func daemonOn(p *corev1.Pod) string {
	if p == nil || p.Spec.NodeName == "" {
		return ""
	}
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != "DaemonSet" || ref.APIVersion != appsv1.SchemeGroupVersion.String() {
		return ""
	}
	return p.Spec.NodeName
}

func keyOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// onDaemonSet has all nodes that start looked at when a DaemonSet comes, goes or changes.
func (c *controller) onDaemonSet(old, ds *appsv1.DaemonSet) {
	if old != nil && ds != nil && old.UID == ds.UID && old.Generation == ds.Generation {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.startups) == 0 {
		return
	}
	for name := range c.starting {
		c.queue.Add(name)
	}
	c.tell()
}

// onStartup has the nodes that follow a NodeStartup looked at. The first one has the pods noted down that there are.
func (c *controller) onStartup(ctx context.Context, old, s *v1alpha1.NodeStartup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := ""
	switch {
	case s == nil && old == nil:
		return
	case s == nil:
		name = old.Name
		delete(c.startups, name)
		c.arrivals.Forget(old.UID)
		c.metrics.forget(name)
		if len(c.startups) == 0 {
			clear(c.pods)
		}
	default:
		name = s.Name
		if len(c.startups) == 0 {
			c.noteAll(ctx)
		}
		c.startups[name] = true
		if old != nil && old.UID != s.UID {
			c.arrivals.Forget(old.UID)
		}
		c.arrivals.Startup(s.UID, c.cfg.Clock.Now())
	}
	if s != nil && newer.Check(s) != nil && says(old, s) {
		c.event(s, corev1.EventTypeWarning, "NotFollowed", "No node is closed or opened: %v", newer.Check(s))
	}
	if says(old, s) {
		for node, at := range c.starting {
			if at.startup == name {
				c.queue.Add(node)
			}
		}
		c.queueAll(ctx)
		c.tell()
	}
}

// says reports whether a NodeStartup says something else than before: it came, went, was changed, or was read by a
// server that knows more or less of it.
func says(old, s *v1alpha1.NodeStartup) bool {
	return old == nil || s == nil || old.Generation != s.Generation || newer.Fields(old) != newer.Fields(s) ||
		(old.DeletionTimestamp == nil) != (s.DeletionTimestamp == nil)
}

// noteAll takes note of all daemons' pods; c.mu is held.
func (c *controller) noteAll(ctx context.Context) {
	var all corev1.PodList
	err := c.reader.List(ctx, &all)
	if err != nil {
		return // ctx has ended: the cache answers otherwise
	}
	for i := range all.Items {
		if node := daemonOn(&all.Items[i]); node != "" {
			c.note(node, keyOf(&all.Items[i]))
		}
	}
}

// daemonPods returns the daemons' pods that are on a node, as they are now.
func (c *controller) daemonPods(ctx context.Context, node string, now time.Time) (out []*corev1.Pod, err error) {
	c.mu.Lock()
	keys := slices.Collect(maps.Keys(c.pods[node]))
	c.mu.Unlock()
	for _, key := range keys {
		p := &corev1.Pod{}
		err := c.reader.Get(ctx, key, p)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read pod %s: %w", key, err)
		}
		if err == nil && p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.starting[node]; at != nil {
		for i := range out {
			out[i] = at.ahead.Vouch(out[i], now)
		}
	}
	return out, nil
}
