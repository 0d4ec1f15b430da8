package simulator

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/simulator/illness"
)

// nodes is the list of the simulated nodes and keeps them alive.
type nodes struct {
	config *Config
	// queue holds the nodes to be registered or corrected, beats those whose heartbeat is due: it must not wait until
	// thousands of others are registered.
	queue, beats workqueue.TypedRateLimitingInterface[string]
	// revisit looks again at all pods of a node; nodes.mu must not be held.
	revisit func(nodeName string)

	mu     sync.Mutex
	byName map[string]*node
}

// node is one simulated node. Its fields are guarded by nodes.mu, but those below busy by that, which is held while the
// node acts.
type node struct {
	name   string
	number int
	// first is the wait for the first heartbeat after registration.
	first time.Duration
	alive bool
	// object is the node in the API as last seen; nil before it registered.
	object *corev1.Node
	// deleted: somebody deleted the node; it stays away until it is started again.
	deleted bool
	// doubted is the object that was known when the node was started again: it may have been deleted before.
	doubted types.UID
	// pods are the addresses for pods, from the range podCIDR.
	pods    *addresses
	podCIDR string
	// images are those that it has fetched.
	images images
	// patient says what ails the node, and state how it is as of the last look; boots counts its returns from a loss of
	// power.
	patient *illness.Patient
	state   illness.State
	boots   int
	// labels and annotation are what the patient was last read from; reread: its pods have not been looked at since.
	labels     map[string]string
	annotation string
	reread     bool

	busy    sync.Mutex
	lease   *coordinationv1.Lease
	renewAt time.Time
	// labelled: its labels say what this release can do.
	labelled bool
	// said is the object whose status was seen to be right, and saidState how the node was then.
	said      *corev1.Node
	saidState illness.State
}

func newNodes(config *Config) *nodes {
	return &nodes{config: config, queue: nameQueue(config), beats: nameQueue(config), byName: map[string]*node{}}
}

// together is how close in time heartbeats are given at once. Many goroutines hear of one, and each that wakes up for
// twenty costs little more than for one.
const together = 100 * time.Millisecond

func nameQueue(config *Config) workqueue.TypedRateLimitingInterface[string] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 10*time.Second)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{
		Clock: config.Clock,
	})
}

func (n *nodes) shutDown() {
	n.queue.ShutDown()
	n.beats.ShutDown()
}

// start brings a node to life; first is when its first heartbeat after the one at its registration is due.
func (n *nodes) start(name string, first time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.byName[name]
	if known == nil {
		known = &node{name: name, number: len(n.byName) + 1, first: first, patient: illness.NewPatient(n.config.Faults, name)}
		n.read(known, nodeLabels(n.config, name, known.number), nil)
		n.byName[name] = known
	}
	if !known.alive && known.object != nil {
		known.doubted = known.object.UID
	}
	known.alive, known.deleted = true, false
	n.queue.Add(name)
}

func (n *nodes) stop(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known := n.byName[name]; known != nil {
		known.alive = false
	}
}

// get returns the node of that name if it is ours, and whether it is alive and not silent.
func (n *nodes) get(name string) (known *node, alive bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known = n.byName[name]
	return known, known != nil && known.acts()
}

// objectOf is the node in the API as last seen; nil before it registered.
func (n *nodes) objectOf(of *node) *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of == nil {
		return nil
	}
	return of.object
}

func (n *node) acts() bool { return n.alive && !n.deleted && !n.state.Silent }

// takeAddress gives a new pod of the node its address.
func (n *nodes) takeAddress(of *node) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pool, err := of.pool()
	if err != nil {
		return "", err
	}
	return pool.take(), nil
}

// keepAddress notes that a pod, found at the start, has the address.
func (n *nodes) keepAddress(of *node, ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pool, err := of.pool(); err == nil {
		pool.keep(ip)
	}
}

func (n *nodes) giveAddress(of *node, ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of.pods != nil {
		of.pods.give(ip)
	}
}

// pool returns the addresses of the node's range, which it may be given only after it registered.
func (n *node) pool() (*addresses, error) {
	podCIDR := ""
	if n.object != nil {
		podCIDR = n.object.Spec.PodCIDR
	}
	if n.pods != nil && n.podCIDR == podCIDR {
		return n.pods, nil
	}
	pool, err := newAddresses(podCIDR, n.number)
	if err != nil {
		return nil, err
	}
	n.pods, n.podCIDR = pool, podCIDR
	return pool, nil
}

func (n *nodes) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { n.seen(obj.(*corev1.Node)) },
		UpdateFunc: func(_, obj any) { n.seen(obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			n.gone(obj.(*corev1.Node))
		},
	}
}

func (n *nodes) seen(object *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.byName[object.Name]
	if known == nil || known.object != nil &&
		known.object.UID != object.UID && newer(known.object.ResourceVersion, object.ResourceVersion) {
		return
	}
	known.object = object
	if n.read(known, object.Labels, object.Annotations) || known.alive && !healthy(object) {
		n.queue.Add(known.name)
	}
}

func (n *nodes) gone(object *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.byName[object.Name]
	if known == nil || known.object == nil || known.object.UID != object.UID {
		return
	}
	known.object, known.pods = nil, nil
	if object.UID == known.doubted { // it was deleted before the node was started again
		n.queue.Add(known.name)
		return
	}
	known.deleted = true
}

// work takes nodes from one of the queues until it is shut down.
func (n *nodes) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) {
	for {
		name, quit := queue.Get()
		if quit {
			return
		}
		next, err := n.sync(ctx, name)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			klog.FromContext(ctx).Error(err, "Could not keep simulated node alive, will try again", "node", name)
			queue.AddRateLimited(name)
		default:
			queue.Forget(name)
			if next > 0 {
				n.beats.AddAfter(name, next)
			}
		}
		queue.Done(name)
	}
}

// sync registers the node, says that it is well and renews its lease, as far as that is due. It returns when the next
// heartbeat is; 0 for a node that is not alive.
func (n *nodes) sync(ctx context.Context, name string) (time.Duration, error) {
	known, acts := n.look(name)
	if !acts {
		return 0, nil
	}
	known.busy.Lock()
	defer known.busy.Unlock()
	object, err := n.register(ctx, known)
	if err != nil {
		return 0, err
	}
	if object, err = n.label(ctx, known, object); err != nil {
		return 0, err
	}
	if object, err = n.report(ctx, known, object); err != nil {
		return 0, err
	}
	n.learn(known, object)
	if n.condition(known).Silent {
		return 0, nil
	}
	return n.heartbeat(ctx, known, object)
}

// register returns the node's object, and creates it if there is none.
func (n *nodes) register(ctx context.Context, known *node) (*corev1.Node, error) {
	n.mu.Lock()
	object, doubted := known.object, known.doubted
	n.mu.Unlock()
	if object != nil && object.UID != doubted {
		return object, nil
	}
	object, err := n.config.Writer.CreateNode(
		ctx, nodeObject(n.config, known.name, known.number, n.condition(known), n.config.Clock.Now()),
	)
	if apierrors.IsAlreadyExists(err) {
		object, err = n.config.Writer.GetNode(ctx, known.name)
	}
	if err != nil {
		return nil, err
	}
	if object.UID != doubted {
		known.lease, known.renewAt = nil, time.Time{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known.object, known.doubted = object, ""
	return object, nil
}

// label says once that the node fetches images, also on one that an older release registered. Who takes the label away
// later means it.
func (n *nodes) label(ctx context.Context, known *node, object *corev1.Node) (*corev1.Node, error) {
	if known.labelled || fetch.Can(object.Labels) {
		known.labelled = true
		return object, nil
	}
	object, err := n.config.Writer.LabelNode(ctx, object, fetch.Name, "true")
	known.labelled = err == nil
	return object, err
}

// report writes the node's status if it is not what it should be.
func (n *nodes) report(ctx context.Context, known *node, object *corev1.Node) (*corev1.Node, error) {
	state := n.condition(known)
	if known.said == object && known.saidState == state {
		return object, nil // as at nearly every heartbeat
	}
	changed := object.DeepCopy()
	if !correct(n.config, changed, known.number, state, n.config.Clock.Now()) {
		known.said, known.saidState = object, state
		return object, nil
	}
	updated, err := n.config.Writer.UpdateNodeStatus(ctx, changed)
	if !apierrors.IsConflict(err) {
		return updated, err
	}
	if changed, err = n.config.Writer.GetNode(ctx, object.Name); err != nil ||
		!correct(n.config, changed, known.number, state, n.config.Clock.Now()) {
		return changed, err
	}
	return n.config.Writer.UpdateNodeStatus(ctx, changed)
}

// learn takes over what the API answered, unless the informer was faster, or the object is gone.
func (n *nodes) learn(known *node, object *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known.object != nil &&
		known.object.UID == object.UID && !newer(known.object.ResourceVersion, object.ResourceVersion) {
		known.object = object
	}
}

// heartbeat renews the lease if it is time, and returns when the next one is due.
func (n *nodes) heartbeat(ctx context.Context, known *node, object *corev1.Node) (time.Duration, error) {
	now := n.config.Clock.Now()
	if wait := known.renewAt.Sub(now); wait > 0 {
		return wait, nil
	}
	next := n.config.Heartbeat
	var err error
	if known.lease == nil {
		next = known.first
		known.lease, err = n.config.Writer.CreateLease(ctx, leaseObject(n.config, object, now))
		if apierrors.IsAlreadyExists(err) {
			known.lease, err = n.config.Writer.GetLease(ctx, known.name)
			if err == nil {
				err = n.renew(ctx, known, now)
			}
		}
	} else {
		err = n.renew(ctx, known, now)
	}
	if err != nil {
		known.lease = nil // read it again, or make a new one
		return 0, err
	}
	next = inCompany(now, next)
	known.renewAt = now.Add(next)
	return next, nil
}

// inCompany is the wait for a next heartbeat a little earlier than that, when others give theirs.
func inCompany(now time.Time, wait time.Duration) time.Duration {
	if wait < 2*together {
		return wait
	}
	return wait.Truncate(together) - time.Duration(now.UnixNano())%together
}

func (n *nodes) renew(ctx context.Context, known *node, now time.Time) error {
	lease := known.lease.DeepCopy()
	at := metav1.NewMicroTime(now)
	lease.Spec.RenewTime = &at
	updated, err := n.config.Writer.UpdateLease(ctx, lease)
	if err == nil {
		known.lease = updated
	}
	return err
}
