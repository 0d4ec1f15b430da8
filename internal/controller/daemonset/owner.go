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
	matrix    *matrix.Matrix // to look at
	core      decisions      // the same, to tell and to ask
	recorder  *recorder      // if it is recorded
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
	o := &owner{
		cfg: c.cfg, buffer: c.buffer, metrics: c.metrics, podLane: pods, rowLane: rows, claimLane: claims,
		exec:      &executor{writer: c.cfg.Writer, recorder: c.cfg.Recorder, clock: c.cfg.Clock, metrics: c.metrics},
		sets:      map[types.UID]*daemonSet{},
		setsIn:    map[string]map[types.UID]*daemonSet{},
		pods:      newIndex[*corev1.Pod](),
		revisions: newIndex[*appsv1.ControllerRevision](),
		claims:    map[types.UID]*daemonSet{},
		retries:   map[types.UID]time.Time{},
	}
	if c.cfg.Record != nil {
		o.recorder = newRecorder(c.cfg.Limits, c.cfg.Record)
		o.matrix, o.core = o.recorder.Matrix, o.recorder
	} else {
		o.matrix = matrix.New(c.cfg.Limits)
		o.core = o.matrix
	}
	return o
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
	if o.recorder != nil && o.recorder.err != nil {
		o.log.Error(o.recorder.err, "The recording of decisions is not complete")
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
	o.core.Step(matrix.Now{Time: o.now})
	kinds, changes, results := o.buffer.drain()
	for i, c := range changes {
		o.apply(kinds[i], c)
	}
	for _, f := range results {
		f(o)
	}
	o.retryDue()
	o.flushClaims()
	for _, a := range o.core.Ready() {
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
			o.core.Step(matrix.NodeGone(obj.Name))
		} else {
			o.core.Step(matrix.ProjectNode(obj))
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
		o.core.Step(matrix.Answer{Action: a, Outcome: matrix.Gone})
		return
	}
	ds, mold := s.acted, s.mold
	done := func(out matrix.Outcome) {
		o.buffer.result(func(o *owner) { o.core.Step(matrix.Answer{Action: a, Outcome: out}) })
	}
	switch a := a.(type) {
	case *matrix.CreatePod:
		o.podLane.submit(func(ctx context.Context) {
			uid, out := o.exec.createPod(ctx, ds, mold, a)
			o.buffer.result(func(o *owner) { o.core.Step(matrix.Answer{Action: a, Outcome: out, Pod: uid}) })
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
				o.core.Step(matrix.Answer{Action: a, Outcome: out})
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
