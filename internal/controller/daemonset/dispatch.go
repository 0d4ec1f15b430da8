package daemonset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches/asking"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/mold"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// handOut hands a job to a worker.
func (o *owner) handOut(j belongings.Job) {
	done := func(e belongings.Event) { o.buffer.result(func(o *owner) { o.book.Step(e) }) }
	switch j := j.(type) {
	case *belongings.RevisionJob:
		on := o.lanes.rows
		if len(j.Relabel) > 0 {
			on = o.lanes.claims
		}
		on.Submit(func(ctx context.Context) { done(o.exec.ApplyRevisions(ctx, j)) })
	case *belongings.CleanupJob:
		o.lanes.rows.Submit(func(ctx context.Context) { done(o.exec.CleanUp(ctx, j)) })
	case *belongings.ClaimJob:
		o.lanes.claims.Submit(func(ctx context.Context) { done(o.exec.ClaimPods(ctx, j)) })
	case *belongings.Notice:
		if j.Err != nil {
			o.log.Error(j.Err, "DaemonSet cannot be worked on", "daemonSet", klog.KObj(j.DaemonSet))
		} else {
			o.cfg.Recorder.Event(j.DaemonSet, corev1.EventTypeWarning, j.Reason, j.Message)
		}
	}
}

// dispatch hands an action to a worker, with the objects it was decided on.
func (o *owner) dispatch(a action.Action) {
	ds, latest := o.book.Acted(a.Row())
	if ds == nil {
		o.matrix.Step(action.Answer{Action: a, Outcome: action.Gone})
		return
	}
	done := func(e action.Answer) {
		e.Action = a
		o.buffer.result(func(o *owner) { o.pins.Step(e) })
	}
	switch a := a.(type) {
	case *action.CreatePod:
		o.pins.Begun(a.Row(), a.Revision, a.PodName)
		of, err := o.molds.For(ds, a)
		if err != nil {
			o.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
			o.pins.Step(action.Answer{Action: a, Outcome: action.Failed, Refused: mold.Refusal(err)})
			return
		}
		o.lanes.pods.Submit(func(ctx context.Context) { done(o.exec.CreatePod(ctx, ds, of, a)) })
	case *action.DeletePod:
		o.remove(ds, a, done)
	case *action.PointPod:
		o.point(ds, a, done)
	case *action.ResizePod:
		o.resize(ds, a, done)
	case *action.FetchImages:
		o.fetch(ds, a, done)
	case *action.FailedPlacement:
		o.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedPlacement", "failed to place pod on %q: %s", a.Node,
			a.Detail)
	case *action.RolloutNews:
		o.tell(ds, a)
	case *action.UpdateRollout:
		o.metrics.Rollouts.Show(a)
		have := o.rollouts.RolloutOf(ds)
		o.lanes.rows.Submit(func(ctx context.Context) {
			updated, out := o.exec.UpdateRollout(ctx, ds, have, a)
			o.buffer.result(func(o *owner) {
				o.rollouts.Step(rollouts.Written{Was: have, Is: updated, Outcome: out})
				o.matrix.Step(action.Answer{Action: a, Outcome: out})
			})
		})
	case *action.UpdateStatus:
		o.lanes.rows.Submit(func(ctx context.Context) {
			updated, out := o.exec.UpdateStatus(ctx, latest, a)
			o.buffer.result(func(o *owner) {
				if _, known := o.book.Acted(a.UID); known != nil && updated != nil {
					o.book.Step(belongings.DaemonSet{Object: updated})
				}
				o.matrix.Step(action.Answer{Action: a, Outcome: out})
			})
		})
	}
}

// remove has a worker delete a pod, unless none can be made in its place.
func (o *owner) remove(ds *appsv1.DaemonSet, a *action.DeletePod, done func(action.Answer)) {
	next, err := o.variants.Outcome(a.UID, a.Next, a.Node)
	if err == nil && next != nil {
		err = next.Err
	}
	if err != nil {
		o.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedCreate", "Leaving pod %s as it is: %v", a.PodName, err)
		o.matrix.Step(action.Answer{Action: a, Outcome: action.Failed})
		return
	}
	o.lanes.pods.Submit(func(ctx context.Context) { done(action.Answer{Outcome: o.exec.DeletePod(ctx, ds, a)}) })
}

// point has a worker point a pod at the content of a revision.
func (o *owner) point(ds *appsv1.DaemonSet, a *action.PointPod, done func(action.Answer)) {
	members, may := o.contents.Given(a.UID, a.Revision)
	if !may {
		o.matrix.Step(action.Answer{Action: a, Outcome: action.Failed})
		return
	}
	o.lanes.pods.Submit(func(ctx context.Context) { done(o.exec.PointPod(ctx, ds, a, members)) })
}

// resize has a worker give a pod the amounts of a revision, if there is a way without another pod.
func (o *owner) resize(ds *appsv1.DaemonSet, a *action.ResizePod, done func(action.Answer)) {
	way, why, err := o.variants.Resize(a.UID, a.PodUID, a.Revision, a.Node)
	if way != nil && a.Gapless && len(way.Restarts) > 0 {
		why = "its containers would be restarted, and with maxSurge its node would be without meanwhile"
	}
	switch {
	case err != nil:
		o.log.V(2).Info("Cannot resize a pod yet", "node", a.Node, "err", err)
		done(action.Answer{Outcome: action.Failed})
	case why != "":
		o.log.V(3).Info("Pod is replaced", "node", a.Node, "revision", a.Revision, "why", why)
		done(action.Answer{Outcome: action.Failed, Refused: why})
	default:
		o.lanes.pods.Submit(func(ctx context.Context) { done(o.exec.ResizePod(ctx, ds, a, way)) })
	}
}

// fetch has a worker ask a node for images, or a pod of its own kind.
func (o *owner) fetch(ds *appsv1.DaemonSet, a *action.FetchImages, done func(action.Answer)) {
	if o.fetches.Takes(a) {
		o.matrix.Step(action.Answer{Action: a, Outcome: action.OK})
		return
	}
	var request *fetch.Request
	if a.Revision != "" {
		spec, err := o.molds.Spec(a.UID, a.Revision, a.Node)
		if err != nil {
			o.log.V(2).Info("Cannot ask a node for images", "node", a.Node, "err", err)
			o.matrix.Step(action.Answer{Action: a, Outcome: action.Failed})
			return
		}
		request = asking.For(a.Revision, spec, o.book.Pod(a.PodUID))
	}
	o.lanes.pods.Submit(func(ctx context.Context) { done(action.Answer{Outcome: o.exec.FetchImages(ctx, a, request)}) })
}
