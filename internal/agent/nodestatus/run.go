package nodestatus

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/eviction"
)

const (
	lookEvery      = 10 * time.Second
	lookSoon       = time.Second // while the runtime isn't ready, for a while
	soonTimes      = 60
	reportEvery    = 5 * time.Minute
	leaseSeconds   = 40
	leaseRenewal   = 10 * time.Second
	runtimeTimeout = 10 * time.Second
)

// Reporter keeps one Node. Its methods may be called from several goroutines.
type Reporter struct {
	cfg  Config
	poke chan struct{}

	// Only Run uses these.
	reported  time.Time
	restarted bool
	gone      bool
	made      bool // the Node, and nobody was told
	// problem is what was logged last, and complained when.
	problem    string
	complained time.Time

	mu          sync.Mutex
	allocatable corev1.ResourceList
	capacity    corev1.ResourceList
	processes   int64
	closing     bool
	closed      bool // the server knows that the node shuts down
}

// New returns a Reporter; it looks at the machine once, so that NodeAllocatable has an answer.
func New(cfg Config) (*Reporter, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	m, err := look(cfg, cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("node status: %w", err)
	}
	return &Reporter{
		cfg:         cfg,
		poke:        make(chan struct{}, 1),
		restarted:   true,
		allocatable: cfg.allocatable(m.capacity),
		capacity:    m.capacity,
		processes:   m.processes.total,
	}, nil
}

// NodeAllocatable is what pods on this node can use in all.
func (r *Reporter) NodeAllocatable() corev1.ResourceList {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.allocatable
}

// Check has Run look at the machine and the runtime at once instead of at the next regular time.
func (r *Reporter) Check() {
	select {
	case r.poke <- struct{}{}:
	default: // one is waiting already
	}
}

// AddressChanged has the node say its new address.
func (r *Reporter) AddressChanged() { r.Check() }

// ShutDown has the node say from now on that it shuts down.
func (r *Reporter) ShutDown() {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	r.Check()
}

// ShutDownIsKnown reports whether the server knows that the node shuts down.
func (r *Reporter) ShutDownIsKnown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Run registers the Node and keeps its lease and its status until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	r.event(event{corev1.EventTypeNormal, "Starting", "Starting kubelet."})
	if err := r.register(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		lease.NewController(r.cfg.Clock, r.cfg.Client, r.cfg.NodeName, leaseSeconds, r.Check, leaseRenewal,
			r.cfg.NodeName, corev1.NamespaceNodeLease, r.ownLease).Run(seldom(ctx, r.cfg.Clock))
	})
	var rest rests
	for {
		pause := rest.after(r.update(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-r.poke:
		case <-r.cfg.Clock.After(pause):
		}
	}
}

// outcome is what became of a look at the node.
type outcome int

const (
	// good is a node that is ready, as the server knows.
	good outcome = iota
	// notReady is one that is not ready, as the server knows.
	notReady
	// untold is one of which the server could not be told.
	untold
)

// rests says how long to rest between looks.
type rests struct {
	last  outcome
	times int // so often in a row
}

// after is how long to rest after a look. A node becomes ready soon, or not for long; a server that is away may be so
// for days.
func (r *rests) after(o outcome) time.Duration {
	if o != r.last {
		*r = rests{last: o}
	}
	r.times++
	switch {
	case o == notReady && r.times <= soonTimes:
		return lookSoon
	case o == untold && r.times < 5:
		return min(lookSoon<<(r.times-1), lookEvery)
	}
	return lookEvery
}

// complain logs what is wrong with the node's status: when it is something else, and every few minutes.
func (r *Reporter) complain(ctx context.Context, err error, what string) {
	now := r.cfg.Clock.Now()
	if err.Error() == r.problem && now.Sub(r.complained) < reportEvery {
		return
	}
	r.problem, r.complained = err.Error(), now
	klog.FromContext(ctx).Error(err, what, "node", r.cfg.NodeName)
}

// ownLease ties the lease to the Node, so that it goes when the Node goes.
func (r *Reporter) ownLease(l *coordinationv1.Lease) error {
	if len(l.OwnerReferences) > 0 {
		return nil
	}
	node, err := r.cfg.Client.CoreV1().Nodes().Get(context.Background(), r.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look up the owner of the node's lease: %w", err)
	}
	l.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: r.cfg.NodeName, UID: node.UID,
	}}
	return nil
}

// Observe measures what thresholds are about.
func (r *Reporter) Observe(ctx context.Context) (eviction.Observations, error) {
	m, err := look(r.cfg, r.imageDir(ctx))
	if err != nil {
		return nil, fmt.Errorf("measure what is free on the node: %w", err)
	}
	return m.observations(), nil
}

// imageDir is a folder on the file system of images. While the runtime is silent, it is taken to be that of the pods.
func (r *Reporter) imageDir(ctx context.Context) string {
	if r.cfg.ImageFS == nil {
		return r.cfg.DataDir
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	dir, err := r.cfg.ImageFS(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The file system of images is not known", "err", err)
		return r.cfg.DataDir
	}
	return dir
}

// gather reads all facts. What can't be read about the machine is an error; a silent runtime is a fact.
func (r *Reporter) gather(ctx context.Context) (facts, error) {
	var f facts
	var err error
	f.machine, err = look(r.cfg, r.imageDir(ctx))
	if err != nil {
		return facts{}, err
	}
	r.mu.Lock()
	r.allocatable, r.capacity = r.cfg.allocatable(f.machine.capacity), f.machine.capacity
	r.processes = f.machine.processes.total
	f.shuttingDown = r.closing
	r.mu.Unlock()
	if r.cfg.Healthy != nil {
		f.unhealthy = r.cfg.Healthy()
	}
	f.pressures = []corev1.NodeConditionType{}
	if r.cfg.Pressures != nil {
		f.pressures = r.cfg.Pressures()
	}
	if r.cfg.ClockSkew != nil {
		f.skew = r.cfg.ClockSkew()
	}
	if r.cfg.Devices != nil {
		f.devices, f.usableDevices = r.cfg.Devices()
	}
	if r.cfg.Network != nil {
		if network, known := r.cfg.Network(); known {
			f.network = &network
		}
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	f.runtime, err = r.cfg.Runtime(ctx)
	if err != nil {
		f.runtimeErr = fmt.Errorf("container runtime is down: %w", err)
		return f, nil
	}
	if r.cfg.Images != nil {
		f.images, err = r.cfg.Images(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Images cannot be listed")
		}
	}
	return f, nil
}

// update looks at everything and writes the status if it must.
func (r *Reporter) update(ctx context.Context) outcome {
	f, err := r.gather(ctx)
	if err != nil {
		r.complain(ctx, err, "Node status cannot be made")
		return untold
	}
	err = r.write(ctx, f)
	switch {
	case err == nil:
		r.gone = false
		r.problem = ""
		r.mu.Lock()
		r.closed = f.shuttingDown
		r.mu.Unlock()
		r.settle(ctx)
		if ready(f).Status != corev1.ConditionTrue {
			return notReady
		}
		return good
	case ctx.Err() != nil:
	case apierrors.IsNotFound(err):
		if r.missing(ctx, err) {
			return good
		}
	default:
		r.complain(ctx, err, "Node status cannot be written")
	}
	return untold
}

// missing finds out why there is no Node. A control plane that was restored from a backup may not know one that joined
// since: it is made again. One that somebody has deleted is not.
func (r *Reporter) missing(ctx context.Context, cause error) (ok bool) {
	logger := klog.FromContext(ctx)
	if r.gone {
		return true
	}
	restored := false
	if r.cfg.Restored != nil {
		var err error
		if restored, err = r.cfg.Restored(ctx); err != nil {
			logger.Error(
				err,
				"There is no Node any more; whether the control plane was restored from a backup cannot be asked",
				"node", r.cfg.NodeName,
			)
			return false
		}
	}
	if !restored {
		logger.Error(cause, "The Node was deleted; start the agent again to register it again", "node", r.cfg.NodeName)
		r.gone = true
		return true
	}
	logger.Info(
		"The control plane was restored from a backup that does not know this node, which registers again",
		"node", r.cfg.NodeName,
	)
	if err := r.tryRegister(ctx); err != nil {
		logger.Error(err, "Node cannot be registered", "node", r.cfg.NodeName)
	}
	return false
}

// settle tells that the control plane has the Node, and whether it was made because of a restore, which may have been
// while the agent was away.
func (r *Reporter) settle(ctx context.Context) {
	if r.cfg.Restored == nil || r.cfg.Settled == nil {
		return
	}
	again := false
	if r.made {
		var err error
		if again, err = r.cfg.Restored(ctx); err != nil {
			klog.FromContext(ctx).V(2).Info(
				"Whether the control plane was restored from a backup cannot be asked yet", "err", err,
			)
			return
		}
	}
	r.made = false
	r.cfg.Settled(ctx, again)
}

// write brings the status on the server up to date. Somebody else's write in between is no reason to wait.
func (r *Reporter) write(ctx context.Context, f facts) error {
	nodes := r.cfg.Client.CoreV1().Nodes()
	f.forgotten = r.restarted && r.cfg.DevicesForgotten
	for try := 1; ; try++ {
		node, err := r.read(ctx, try)
		if err != nil {
			return fmt.Errorf("read node %s: %w", r.cfg.NodeName, err)
		}
		now := r.cfg.Clock.Now()
		status := build(r.cfg, node.Status, f, now)
		if sameStatus(node.Status, status) && now.Sub(r.reported) < reportEvery {
			return nil
		}
		old := node.Status
		node = node.DeepCopy()
		node.Status = status
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		// Admission looks before versions are compared: a taint that came or went since is taken for one of the node's.
		if (apierrors.IsConflict(err) || apierrors.IsForbidden(err) && try == 1) && try < 5 {
			continue
		}
		if err != nil {
			return fmt.Errorf("write status of node %s: %w", r.cfg.NodeName, err)
		}
		r.reported = now
		for _, e := range events(r.cfg.NodeName, old, status, r.restarted) {
			r.event(e)
		}
		r.restarted = false
		if f.forgotten && r.cfg.DevicesReset != nil {
			r.cfg.DevicesReset()
		}
		return nil
	}
}

// read returns the Node. At first one that is a moment old will do: what the watch shows, or what the server has in
// memory. It is not to be changed.
func (r *Reporter) read(ctx context.Context, try int) (*corev1.Node, error) {
	options := metav1.GetOptions{}
	if try == 1 {
		if r.cfg.Node != nil {
			if node := r.cfg.Node(); node != nil {
				return node, nil
			}
		}
		options.ResourceVersion = "0"
	}
	return r.cfg.Client.CoreV1().Nodes().Get(ctx, r.cfg.NodeName, options)
}

// event tells something about the node. Its reference has the name as UID, which is what kubectl describe looks for.
func (r *Reporter) event(e event) {
	reference := &corev1.ObjectReference{Kind: "Node", Name: r.cfg.NodeName, UID: types.UID(r.cfg.NodeName)}
	r.cfg.Recorder.Event(reference, e.kind, e.reason, e.message)
}

// equal compares by meaning: an empty list is a missing one, 1 is 1000m.
func equal(a, b corev1.NodeStatus) bool { return equality.Semantic.DeepEqual(a, b) }
