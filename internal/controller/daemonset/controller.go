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
	"io"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches/asking"
	"github.com/everynode/everynode/internal/controller/daemonset/lane"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placements"
	"github.com/everynode/everynode/internal/controller/daemonset/strange"
	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
)

// EventSource is the component name that the recorder should carry.
const EventSource = "daemonset-controller"

// Informers is where the controller reads. A controller-runtime cache is one.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// ContentAccess reads ConfigMaps and Secrets in some namespaces, and writes copies of them.
type ContentAccess interface {
	// Follow reads a kind in a namespace until ctx ends, and reports whether it can be read. It returns at once.
	Follow(ctx context.Context, namespace string, kind content.Kind, handler toolscache.ResourceEventHandler,
		tell func(contents.Sight))
	CarryOut(ctx context.Context, j *contents.Job) contents.Result
}

// Config is what New needs. Informers, Writer and Recorder are required.
type Config struct {
	Informers Informers
	Writer    Writer
	// Recorder takes events; it must not block. Its source should be EventSource.
	Recorder record.EventRecorder
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Workers is how many pods are created or deleted at a time. Default 32.
	Workers int
	// Limits bound what is in flight and pace retries; see matrix.Config.
	Limits row.Config
	// AuditInterval is the time between two audits of the running totals. Default 10 minutes.
	AuditInterval time.Duration
	// NormalizeTemplate fills a pod template's defaults in, so that a revision
	// written before a default existed still counts as the same. Optional.
	NormalizeTemplate func(*corev1.PodTemplateSpec)
	// Rollouts writes Everynode's own kinds. With nil no policy is read, and none followed.
	// Where the API does not serve the kinds, they are awaited: a DaemonSet that says that it
	// follows a policy stands still until then, and all others change as without one.
	Rollouts RolloutWriter
	// Content reads and writes what is content. With nil no policy with content can be followed.
	Content ContentAccess
	// CopiesLinger is how long a copy of content stays that nobody needs. Default 2 minutes.
	CopiesLinger time.Duration
	// LiveContent tells that the API server lets this controller alone say what the volumes of running pods show, and
	// what their nodes fetch.
	LiveContent bool
	// FetchImage is the image of Everynode, of which pods are that have nodes fetch images where no agents of ours can be
	// asked; "" for no such pods. FetchBy makes and deletes them.
	FetchImage string
	FetchBy    asking.Writer
	// Startups tells that daemons start on new nodes in the order of NodeStartups, as far as these can be read.
	Startups bool
	// Placements is told by which rules nodes get the daemons that NodeStartups list. Optional.
	Placements *placements.Board
	// Variants writes DaemonSetVariants. With nil none is read. Where the API does not serve them, or they cannot be
	// read, a DaemonSet that has variants keeps those. A guest uses none, and says so in their conditions.
	Variants storing.StatusWriter
	// Trials tries pods by variants before nodes are changed to them. With nil none is tried.
	Trials storing.Trier
	// Watches tells when Everynode's own kinds cannot be followed; NewWatches makes one.
	// Without it they are taken to be, and the controller waits for them at its start.
	Watches *Watches
	// Guest tells that another controller makes the pods and looks after revisions, and that admission gives each pod
	// its node's revision. Pods are deleted in their turn, where a policy is followed; see internal/beside.
	Guest bool
	// Record takes a script of all that is decided and from what, for finding out
	// why: see README.md. It grows with every event. Optional.
	Record io.Writer
	// Registerer gets the controller's metrics. Optional.
	Registerer prometheus.Registerer
}

func (c Config) complete() (Config, error) {
	var errs []error
	if c.Informers == nil {
		errs = append(errs, errors.New("field Informers is not set"))
	}
	if c.Writer == nil {
		errs = append(errs, errors.New("field Writer is not set"))
	}
	if c.Recorder == nil {
		errs = append(errs, errors.New("field Recorder is not set"))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("field Workers is %d, must not be negative", c.Workers))
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Limits.Guest, c.Limits.FetchPods = c.Limits.Guest || c.Guest, c.Limits.FetchPods || c.FetchImage != ""
	c.Limits.Fetches = c.Limits.Fetches || c.LiveContent && !c.Limits.Guest || c.Limits.FetchPods
	if c.Workers == 0 {
		c.Workers = 32
	}
	if c.AuditInterval == 0 {
		c.AuditInterval = 10 * time.Minute
	}
	return c, errors.Join(errs...)
}

// rowWorkers write statuses and revisions, and as many others owner references. They are apart from the pod workers so
// that neither a thousand creations nor a thousand adoptions hold a status back.
const rowWorkers = 8

// Controller keeps the daemon pods of all DaemonSets as they should be.
type Controller struct {
	cfg     Config
	buffer  *buffer
	metrics *metrics
	own     sight
}

// New returns a controller that does nothing until Run.
func New(cfg Config) (*Controller, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("configure DaemonSet controller: %w", err)
	}
	m, err := newMetrics(cfg.Registerer)
	teller, untold := strange.New(cfg.Recorder, cfg.Registerer)
	if err = errors.Join(err, untold); err != nil {
		return nil, fmt.Errorf("register DaemonSet controller metrics: %w", err)
	}
	c := &Controller{cfg: cfg, buffer: newBuffer(), metrics: m, own: sight{watches: cfg.Watches, strange: teller}}
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
	o := newOwner(c, pods, rows, claims)
	logger.Info("DaemonSet controller works", "workers", c.cfg.Workers)
	waiting := c.await(ctx)
	o.run(ctx)
	waiting.Wait()
	pods.Wait()
	rows.Wait()
	claims.Wait()
	return nil
}

// source is a kind that the controller listens to.
type source struct {
	kind   string
	obj    client.Object
	ignore func(old, obj metav1.Object) bool
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
