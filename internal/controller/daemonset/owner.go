package daemonset

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
)

// decisions is a matrix, or one that is recorded.
type decisions interface {
	UpdateDaemonSet(info matrix.DaemonSetInfo)
	DeleteDaemonSet(uid types.UID)
	UpdateNode(info matrix.NodeInfo)
	DeleteNode(name string)
	UpdatePod(info matrix.PodInfo)
	DeletePod(uid types.UID)
	Tick(now time.Time)
	NextTick() (time.Time, bool)
	Ready() []matrix.Action
	Created(a *matrix.CreatePod, pod types.UID)
	Done(a matrix.Action, o matrix.Outcome)
	Pod(uid types.UID) (matrix.PodInfo, bool)
	Pods() []types.UID
	PodsOfRevision(uid types.UID, revision string) int
	Audit() []string
	Dump() matrix.Snapshot
}

func newMatrix(cfg Config) decisions {
	if cfg.Record == nil {
		return matrix.New(cfg.Limits)
	}
	return matrix.NewRecorder(cfg.Limits, cfg.Record)
}

// owner holds everything that changes. Only its goroutine touches it.
type owner struct {
	cfg     Config
	buffer  *buffer
	exec    *executor
	metrics *metrics
	podLane *lane
	rowLane *lane
	// claimLane is for jobs of many writes, so that no status waits for them.
	claimLane *lane
	log       klog.Logger
	matrix    decisions
	sets      map[types.UID]*daemonSet
	setsIn    map[string]map[types.UID]*daemonSet // by namespace
	pods      index[*corev1.Pod]
	revisions index[*appsv1.ControllerRevision]
	// claims and retries are the DaemonSets with something queued or to be
	// tried again.
	claims  map[types.UID]*daemonSet
	retries map[types.UID]time.Time
	now     time.Time
}

func newOwner(c *Controller, pods, rows, claims *lane) *owner {
	return &owner{
		cfg: c.cfg, buffer: c.buffer, metrics: c.metrics, podLane: pods, rowLane: rows, claimLane: claims,
		exec:      &executor{writer: c.cfg.Writer, recorder: c.cfg.Recorder, clock: c.cfg.Clock, metrics: c.metrics},
		matrix:    newMatrix(c.cfg),
		sets:      map[types.UID]*daemonSet{},
		setsIn:    map[string]map[types.UID]*daemonSet{},
		pods:      newIndex[*corev1.Pod](),
		revisions: newIndex[*appsv1.ControllerRevision](),
		claims:    map[types.UID]*daemonSet{},
		retries:   map[types.UID]time.Time{},
	}
}

// run is the owner goroutine: take in what changed, decide, hand out.
func (o *owner) run(ctx context.Context) {
	o.log = klog.FromContext(ctx)
	audit := o.cfg.Clock.NewTicker(o.cfg.AuditInterval)
	defer audit.Stop()
	for ctx.Err() == nil {
		o.turn()
		o.wait(ctx, audit)
	}
	if r, ok := o.matrix.(*matrix.Recorder); ok && r.Err() != nil {
		o.log.Error(r.Err(), "The recording of decisions is not complete")
	}
}

// wait returns when there is something to do.
func (o *owner) wait(ctx context.Context, audit clock.Ticker) {
	var due <-chan time.Time
	if at, ok := o.nextTurn(); ok {
		timer := o.cfg.Clock.NewTimer(max(0, at.Sub(o.cfg.Clock.Now())))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-o.buffer.wake:
	case <-due:
	case <-audit.C():
		o.audit()
	}
}

func (o *owner) turn() {
	start := o.cfg.Clock.Now()
	o.now = start
	o.matrix.Tick(o.now)
	kinds, changes, results := o.buffer.drain()
	for i, c := range changes {
		o.apply(kinds[i], c)
	}
	for _, f := range results {
		f(o)
	}
	o.retryDue()
	o.flushClaims()
	for _, a := range o.matrix.Ready() {
		o.dispatch(a)
	}
	o.metrics.turnSeconds.Observe(o.cfg.Clock.Since(start).Seconds())
}

// nextTurn returns when there is something to do without any event.
func (o *owner) nextTurn() (time.Time, bool) {
	at, ok := o.matrix.NextTick()
	for _, t := range o.retries {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	return at, ok
}

func (o *owner) retryDue() {
	for uid, at := range o.retries {
		if at.After(o.now) {
			continue
		}
		delete(o.retries, uid)
		if s := o.sets[uid]; s != nil {
			o.sync(s)
		}
	}
}

func (o *owner) apply(kind string, c change) {
	switch obj := c.obj.(type) {
	case *appsv1.DaemonSet:
		if c.deleted {
			o.onDaemonSetGone(obj)
		} else {
			o.onDaemonSet(obj)
		}
	case *appsv1.ControllerRevision:
		o.onRevision(obj, c)
	case *corev1.Node:
		if c.deleted {
			o.matrix.DeleteNode(obj.Name)
		} else {
			o.matrix.UpdateNode(matrix.ProjectNode(obj))
		}
	case *corev1.Pod:
		// A pod that came and went between two turns must still be seen once:
		// a cell may be waiting for it.
		if !c.deleted || !o.pods.has(obj.UID) {
			o.onPod(obj)
		}
		if c.deleted {
			o.onPodGone(obj)
		}
	default:
		o.log.Error(nil, "Informer delivers an unexpected type", "kind", kind)
	}
}

// dispatch hands an action to a worker, with the objects it was decided on.
func (o *owner) dispatch(a matrix.Action) {
	s := o.sets[a.Row()]
	if s == nil {
		o.matrix.Done(a, matrix.Gone)
		return
	}
	ds, mold := s.acted, s.mold
	done := func(out matrix.Outcome) {
		o.buffer.result(func(o *owner) { o.matrix.Done(a, out) })
	}
	switch a := a.(type) {
	case *matrix.CreatePod:
		o.podLane.submit(func(ctx context.Context) {
			uid, out := o.exec.createPod(ctx, ds, mold, a)
			o.buffer.result(func(o *owner) {
				if out == matrix.OK {
					o.matrix.Created(a, uid)
				} else {
					o.matrix.Done(a, out)
				}
			})
		})
	case *matrix.DeletePod:
		o.podLane.submit(func(ctx context.Context) { done(o.exec.deletePod(ctx, ds, a)) })
	case *matrix.FailedPlacement:
		o.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedPlacement", "failed to place pod on %q: %s", a.Node, a.Detail)
	case *matrix.UpdateStatus:
		base := s.latest
		o.rowLane.submit(func(ctx context.Context) {
			updated, out := o.exec.updateStatus(ctx, base, a)
			o.buffer.result(func(o *owner) {
				if updated != nil {
					o.sawDaemonSet(updated)
				}
				o.matrix.Done(a, out)
			})
		})
	}
}

// outdated tells whether a is an earlier version of the object than b. Versions
// that cannot be compared count as later, so that nothing is missed.
func outdated(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}
