package simulator

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/simulator/mounts"
)

// pods holds the pods of all simulated nodes. A worker takes one pod at a time, so a pod is never worked on twice at
// once.
type pods struct {
	config *Config
	nodes  *nodes
	queue  workqueue.TypedRateLimitingInterface[types.UID]

	mu    sync.Mutex
	byUID map[types.UID]*entry
}

// entry is one pod. Object, given and gone are guarded by pods.mu; sim belongs to the worker that has the UID.
type entry struct {
	object *corev1.Pod // the newest that is known
	given  *corev1.Pod // with the cpu and memory that its node has given it; nil before that
	gone   bool
	sim    *pod
}

func newPods(config *Config, nodes *nodes) *pods {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)
	return &pods{
		config: config, nodes: nodes,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Clock: config.Clock}),
		byUID: map[types.UID]*entry{},
	}
}

func (p *pods) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { p.seen(obj.(*corev1.Pod)) },
		UpdateFunc: func(old, obj any) {
			// A deletion and a new pod of the same name can reach an informer as one update.
			if before := old.(*corev1.Pod); before.UID != obj.(*corev1.Pod).UID {
				p.gone(before)
			}
			p.seen(obj.(*corev1.Pod))
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			p.gone(obj.(*corev1.Pod))
		},
	}
}

// seen takes in a pod's object if the pod is on one of our nodes.
func (p *pods) seen(object *corev1.Pod) {
	if known, _ := p.nodes.get(object.Spec.NodeName); known == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.byUID[object.UID]
	if known == nil {
		known = &entry{}
		p.byUID[object.UID] = known
	}
	if known.object != nil && known.object.ResourceVersion == object.ResourceVersion && object.ResourceVersion != "" {
		// An answer to one of our writes said this. That was a copy, and this is the one that all share.
		known.object = object
		return
	}
	if known.object != nil && !newer(object.ResourceVersion, known.object.ResourceVersion) {
		return // an answer said more
	}
	known.object = object
	p.queue.Add(object.UID)
}

func (p *pods) gone(object *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.byUID[object.UID]; known != nil {
		known.gone = true
		p.queue.Add(object.UID)
	}
}

// revisit looks again at all pods of a node that came back to life.
func (p *pods) revisit(nodeName string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, known := range p.byUID {
		if known.object.Spec.NodeName == nodeName {
			p.queue.Add(uid)
		}
	}
}

// newer reports whether resource version a comes after b. What cannot be compared is taken as newer.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil || order > 0
}

// work looks after pods until the queue is shut down.
func (p *pods) work(ctx context.Context) {
	for {
		uid, quit := p.queue.Get()
		if quit {
			return
		}
		wait, err := p.sync(ctx, uid)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			klog.FromContext(ctx).Error(err, "Could not write a simulated pod, will try again", "podUID", uid)
			p.queue.AddRateLimited(uid)
		default:
			p.queue.Forget(uid)
			if wait > 0 {
				p.queue.AddAfter(uid, wait)
			}
		}
		p.queue.Done(uid)
	}
}

// sync lets the pod's node act, and writes what comes of it. It returns when to come again though nothing happened, 0
// for never.
func (p *pods) sync(ctx context.Context, uid types.UID) (time.Duration, error) {
	p.mu.Lock()
	known := p.byUID[uid]
	if known == nil {
		p.mu.Unlock()
		return 0, nil
	}
	object, gone := known.object, known.gone
	p.mu.Unlock()
	host, alive := p.nodes.get(object.Spec.NodeName)
	if !alive && !gone {
		return 0, nil // nobody is there; revisit comes when the node does
	}
	if known.sim == nil {
		known.sim = p.newPod(object, host)
	}
	asked := object
	object, known.sim.pending = p.allocate(known, asked, host)
	now := p.config.Clock.Now()
	p.examine(known.sim, object, host, now)
	err := p.readContent(ctx, known.sim, object)
	if err != nil {
		return 0, err
	}
	res := known.sim.step(object, gone, now)
	tell(p.config, object, known.sim.events)
	known.sim.events = nil
	if ill, found := known.sim.deadly(object); found {
		p.nodes.dies(host, known.sim.uid, ill)
	}
	switch {
	case res.forget:
		p.forget(uid, known, host)
		return 0, nil
	case res.finish != nil:
		err := p.config.Writer.DeletePod(ctx, object)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			err = nil // gone already, and perhaps replaced
		}
		known.sim.finished(*res.finish, err, now)
		return 0, err
	case res.status != nil && !equality.Semantic.DeepEqual(res.status, &object.Status):
		if err := p.write(ctx, known, asked, res.status); err != nil {
			return 0, err
		}
	}
	if res.again.IsZero() {
		return 0, nil
	}
	return max(res.again.Sub(p.config.Clock.Now()), time.Millisecond), nil
}

// write stores the status. A conflict means that a newer object is on its way: its arrival brings us back.
func (p *pods) write(ctx context.Context, known *entry, object *corev1.Pod, status *corev1.PodStatus) error {
	changed := *object
	changed.Status = *status
	updated, err := p.config.Writer.UpdatePodStatus(ctx, &changed)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		klog.FromContext(ctx).V(4).Info("Pod changed under our hands", "pod", klog.KObj(object), "err", err)
		return nil
	case err != nil:
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if newer(updated.ResourceVersion, known.object.ResourceVersion) {
		known.object = updated
	}
	return nil
}

func (p *pods) newPod(object *corev1.Pod, host *node) *pod {
	made := &pod{
		uid:     string(object.UID),
		boots:   p.nodes.bootsOf(host),
		image:   p.config.Images,
		imageID: p.config.Faults.ImageID,
		hostIPs: []string{nodeIP(host.number)},
	}
	made.hasImage = func(image string) bool { return p.nodes.hasImage(host, image) }
	made.keepImage = func(image string) { p.nodes.keepsImage(host, image) }
	made.takeAddress = func() (string, error) { return p.nodes.takeAddress(host) }
	made.restore(object)
	made.memory.RecallSizes(object, &made.runtime)
	for i := range made.runtime.Sandboxes {
		for _, ip := range made.runtime.Sandboxes[i].IPs {
			p.nodes.keepAddress(host, ip)
		}
	}
	return made
}

// examine finds out what ails the pod, and whether its node has lost its power since it last acted.
func (p *pods) examine(sim *pod, object *corev1.Pod, host *node, now time.Time) {
	ward, boots, err := p.nodes.ward(host, object)
	if boots != sim.boots {
		sim.lostPower(now)
	}
	sim.ward, sim.boots = ward, boots
	if err != nil && !sim.toldUnread {
		sim.toldUnread = true
		sim.note("", corev1.EventTypeWarning, "SimulatedFaultUnreadable", err.Error())
	}
}

// readContent finds out what the pod's volumes show, and has that ail it if it can.
func (p *pods) readContent(ctx context.Context, sim *pod, object *corev1.Pod) error {
	reader := mounts.Reader{ConfigMap: p.config.Writer.GetConfigMap, Secret: p.config.Secrets}
	err := sim.shown.Read(ctx, object, sim.ward.Reads(), reader)
	if err == nil && sim.ward != nil {
		sim.ward.Content = sim.shown.Data()
	}
	return err
}

func (p *pods) forget(uid types.UID, known *entry, host *node) {
	if host != nil {
		p.nodes.survives(host, string(uid))
	}
	if host != nil && !known.object.Spec.HostNetwork {
		p.nodes.giveAddress(host, known.object.Status.PodIP)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byUID, uid)
}
