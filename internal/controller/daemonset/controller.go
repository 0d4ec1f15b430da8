// Package daemonset runs the DaemonSet controller: one daemon pod on every node
// that fits, for every DaemonSet.
//
// The decisions are made in the pure packages matrix (which pod to create or
// delete, and what the status is), belongings (which pods and revisions are whose)
// and rollouts (which policy holds for which DaemonSet). This package moves facts,
// jobs and actions:
//
//	informers -> buffer -> owner: books -> matrix -> lanes of workers -> API
//	                          ^                              |
//	                          +-------- outcomes <-----------+
//
// Everything that changes is known to one goroutine only, the owner. Handlers
// translate and coalesce; workers write and report back.
package daemonset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/lane"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/metrics"
	"github.com/everynode/everynode/internal/controller/daemonset/strange"
)

// rowWorkers write statuses and revisions, and as many others owner references. They are apart from the pod workers so
// that neither a thousand creations nor a thousand adoptions hold a status back.
const rowWorkers = 8

// callTimeout bounds one job, so that an API server that does not answer shows
// up as a failure.
const callTimeout = time.Minute

// Controller keeps the daemon pods of all DaemonSets as they should be.
type Controller struct {
	cfg     Config
	buffer  *buffer[*owner]
	metrics *metrics.Metrics
	own     sight
}

// New returns a controller that does nothing until Run.
func New(cfg Config) (*Controller, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("configure DaemonSet controller: %w", err)
	}
	m, err := metrics.New(cfg.Registerer)
	teller, untold := strange.New(cfg.Recorder, cfg.Registerer)
	if err = errors.Join(err, untold); err != nil {
		return nil, fmt.Errorf("register DaemonSet controller metrics: %w", err)
	}
	c := &Controller{cfg: cfg, buffer: newBuffer[*owner](), metrics: m, own: sight{watches: cfg.Watches, strange: teller}}
	cfg.Placements.Wakes(c.buffer.nudge)
	return c, nil
}

// Run works until ctx ends, then waits for calls under way and returns nil. It
// returns an error only if it cannot start. It may be called once.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("daemonset")
	ctx = klog.NewContext(ctx, logger)
	remove, synced, err := c.listen(ctx)
	defer remove()
	if err != nil {
		return err
	}
	if !toolscache.WaitFor(ctx, "", synced...) || !c.own.wait(ctx, c.cfg.Clock) {
		return nil
	}
	start := func(workers int) *lane.Lane { return lane.Start(ctx, workers, callTimeout) }
	pods, rows, claims := start(c.cfg.Workers), start(rowWorkers), start(rowWorkers)
	o := newOwner(c.cfg, &c.own, c.buffer, c.metrics, lanes{pods, rows, claims})
	logger.Info("DaemonSet controller works", "workers", c.cfg.Workers)
	waiting := c.await(ctx)
	o.run(ctx)
	waiting.Wait()
	pods.Wait()
	rows.Wait()
	claims.Wait()
	return nil
}

// listen registers the handlers. The function it returns takes them off again.
func (c *Controller) listen(ctx context.Context) (remove func(), synced []toolscache.DoneChecker, err error) {
	var undo []func()
	remove = func() {
		for _, f := range undo {
			f()
		}
	}
	sources := []source{
		{kindDaemonSet, &appsv1.DaemonSet{}, sameVersion},
		{kindRevision, &appsv1.ControllerRevision{}, sameVersion},
		{kindNode, &corev1.Node{}, ignoreNode},
		{kindPod, &corev1.Pod{}, ignorePod},
	}
	if c.cfg.Rollouts != nil {
		sources[2].ignore = ignoreNodeInOrder
		sources = append(sources, ownSources...)
	}
	if c.cfg.Startups {
		sources = append(sources, source{kindStartup, &v1alpha1.NodeStartup{}, sameVersion})
	}
	if c.cfg.Variants != nil {
		// First: no pod is made before it is known how large its node is.
		sources = slices.Concat([]source{{kindNodeSize, &corev1.Node{}, ignoreNodeSize}}, sources,
			[]source{{kindVariant, &v1alpha1.DaemonSetVariant{}, sameVersion}})
	}
	for _, s := range sources {
		_, own := plural[s.kind]
		checker, off, err := c.listenTo(ctx, s)
		switch {
		case own && meta.IsNoMatchError(err):
			c.own.kinds = append(c.own.kinds, ownKind{source: s})
			continue
		case err != nil:
			return remove, nil, err
		case own:
			c.own.kinds = append(c.own.kinds, ownKind{source: s, synced: checker})
		default:
			synced = append(synced, checker)
		}
		undo = append(undo, off)
	}
	return remove, synced, nil
}

// ownSources are Everynode's own kinds.
var ownSources = []source{
	{kindPolicy, &v1alpha1.RolloutPolicy{}, sameVersion}, {kindRollout, &v1alpha1.DaemonSetRollout{}, sameVersion},
}

// listenTo registers the handler of one kind, and returns what tells when the kind has been read and what
// takes the handler off. The error is a NoMatchError if the API does not serve the kind.
func (c *Controller) listenTo(ctx context.Context, s source) (toolscache.DoneChecker, func(), error) {
	informer, err := c.cfg.Informers.GetInformer(ctx, s.obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, nil, fmt.Errorf("get informer for %s: %w", s.kind, err)
	}
	registration, err := informer.AddEventHandler(c.buffer.handler(s.kind, s.ignore))
	if err != nil {
		return nil, nil, fmt.Errorf("listen to %s: %w", s.kind, err)
	}
	return registration.HasSyncedChecker(), func() {
		if err := informer.RemoveEventHandler(registration); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot stop listening", "kind", s.kind)
		}
	}, nil
}

// Dump returns what the controller knows and intends, as one consistent picture. It waits for the owner goroutine and
// fails if ctx ends before that, as it does when the controller does not run.
func (c *Controller) Dump(ctx context.Context) (matrix.Snapshot, error) {
	got := make(chan matrix.Snapshot, 1)
	c.buffer.result(func(o *owner) { got <- o.matrix.Dump() })
	select {
	case s := <-got:
		return s, nil
	case <-ctx.Done():
		return matrix.Snapshot{}, fmt.Errorf("dump DaemonSet matrix: %w", ctx.Err())
	}
}

// await listens to own kinds that the API does not serve yet, as soon as it does. The group ends with ctx.
func (c *Controller) await(ctx context.Context) *sync.WaitGroup {
	var running sync.WaitGroup
	for i := range c.own.kinds {
		if c.own.kinds[i].served() {
			continue
		}
		s := c.own.kinds[i].source
		running.Go(func() { c.awaitKind(ctx, i, s) })
	}
	return &running
}

func (c *Controller) awaitKind(ctx context.Context, i int, s source) {
	logger := klog.FromContext(ctx)
	logger.Info("The API does not serve a kind: its definition is missing", "kind", plural[s.kind])
	ask := c.cfg.Clock.NewTicker(awaitEvery)
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ask.C():
		}
		synced, off, err := c.listenTo(ctx, s)
		if err != nil {
			logger.V(4).Info("Cannot listen to a kind yet", "kind", s.kind, "err", err)
			continue
		}
		logger.Info("The API serves a kind that was missing", "kind", plural[s.kind])
		c.buffer.result(func(*owner) {
			c.own.kinds[i].synced, c.own.kinds[i].late = synced, true
			c.buffer.nudge() // the turn that takes this in has looked already
		})
		toolscache.WaitFor(ctx, "", synced)
		c.buffer.nudge() // and the one that looked since found it unread
		<-ctx.Done()
		off()
		return
	}
}
