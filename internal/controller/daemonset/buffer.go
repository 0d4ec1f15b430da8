package daemonset

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// change is the newest that is known of one object.
type change struct {
	obj     metav1.Object
	deleted bool
	// added says that nothing but the object's appearance happened.
	added bool
}

// buffer collects changes between two turns of the owner goroutine. Several changes of one object become one, so a
// burst is never longer than the number of objects.
type buffer[O any] struct {
	mu      sync.Mutex
	changes map[changeKey]change
	order   []changeKey
	results []func(O)
	wake    chan struct{}
}

type changeKey struct {
	kind string
	uid  types.UID
}

func newBuffer[O any]() *buffer[O] {
	return &buffer[O]{changes: map[changeKey]change{}, wake: make(chan struct{}, 1)}
}

func (b *buffer[O]) put(kind string, c change) {
	b.mu.Lock()
	key := changeKey{kind, c.obj.GetUID()}
	old, seen := b.changes[key]
	if !seen {
		b.order = append(b.order, key)
	}
	c.added = c.added && (!seen || old.added)
	b.changes[key] = c
	b.mu.Unlock()
	b.nudge()
}

// result hands the outcome of a job to the owner goroutine.
func (b *buffer[O]) result(f func(O)) {
	b.mu.Lock()
	b.results = append(b.results, f)
	b.mu.Unlock()
	b.nudge()
}

func (b *buffer[O]) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// drain empties the buffer. Changes come before results, so that the outcome of an action finds what the action caused
// already known. DaemonSets come last: what is decided about one must not miss what came with it, above all its
// revisions when the controller starts.
func (b *buffer[O]) drain() (kinds []string, changes []change, results []func(O)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sets := range []bool{false, true} {
		for _, key := range b.order {
			if (key.kind == kindDaemonSet) == sets {
				kinds = append(kinds, key.kind)
				changes = append(changes, b.changes[key])
			}
		}
	}
	results = b.results
	if len(b.order) > 0 {
		b.changes, b.order = map[changeKey]change{}, nil
	}
	b.results = nil
	return kinds, changes, results
}

// handler returns an informer handler that only puts changes into the buffer.
// Updates for which ignore answers true are dropped.
func (b *buffer[O]) handler(kind string, ignore func(old, obj metav1.Object) bool) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if o, ok := obj.(metav1.Object); ok && !ignore(nil, o) {
				b.put(kind, change{obj: o, added: true})
			}
		},
		UpdateFunc: func(old, obj any) {
			was, ok1 := old.(metav1.Object)
			o, ok2 := obj.(metav1.Object)
			switch {
			case !ok1 || !ok2:
			case was.GetUID() != o.GetUID():
				b.put(kind, change{obj: was, deleted: true})
				b.put(kind, change{obj: o, added: true})
			case !ignore(was, o):
				b.put(kind, change{obj: o})
			}
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if o, ok := obj.(metav1.Object); ok && !ignore(nil, o) {
				b.put(kind, change{obj: o, deleted: true})
			}
		},
	}
}

// The kinds of objects that are read.
const (
	kindDaemonSet = "DaemonSet"
	kindNode      = "Node"
	kindPod       = "Pod"
	kindRevision  = "ControllerRevision"
	kindPolicy    = "RolloutPolicy"
	kindRollout   = "DaemonSetRollout"
	kindStartup   = "NodeStartup"
	kindVariant   = "DaemonSetVariant"
	// kindNodeSize is a Node, as far as variants go by it: its labels, and how large it is.
	kindNodeSize = "NodeSize"
)

func sameVersion(old, obj metav1.Object) bool {
	return old != nil && old.GetResourceVersion() == obj.GetResourceVersion()
}

// ignorePod drops pods of other controllers. A version that is known comes again after a list was read: it is passed
// on, so that the old copy is not kept beside the informer's.
func ignorePod(old, obj metav1.Object) bool {
	return old == obj || (!concerns(obj) && (old == nil || !concerns(old)))
}

// ignoreNode drops heartbeats: what placement reads is the same.
func ignoreNode(old, obj metav1.Object) bool {
	was, ok1 := old.(*corev1.Node)
	is, ok2 := obj.(*corev1.Node)
	return ok1 && ok2 && fact.OfNode(was).Equal(fact.OfNode(is))
}

// ignoreNodeInOrder drops heartbeats too, where rollouts must hear of nodes that are out
// of order.
func ignoreNodeInOrder(old, obj metav1.Object) bool {
	if !ignoreNode(old, obj) {
		return false
	}
	was, ok1 := old.(*corev1.Node)
	is, ok2 := obj.(*corev1.Node)
	return ok1 && ok2 && fact.HealthOf(was) == fact.HealthOf(is)
}

// ignoreNodeSize drops what changes neither a node's labels nor how large it is.
func ignoreNodeSize(old, obj metav1.Object) bool {
	was, ok1 := old.(*corev1.Node)
	is, ok2 := obj.(*corev1.Node)
	return ok1 && ok2 && maps.Equal(was.Labels, is.Labels) && variant.SizeOf(was) == variant.SizeOf(is)
}

func concerns(obj metav1.Object) bool { return belongings.Concerns(obj) || fetchpod.Is(obj) }
