package daemonset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/variants"
	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

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
		o.podLane.Submit(func(ctx context.Context) { done(o.exec.resizePod(ctx, ds, a, way)) })
	}
}

// point has a worker point a pod at the content of a revision.
func (o *owner) point(ds *appsv1.DaemonSet, a *action.PointPod, done func(action.Answer)) {
	members, may := o.contents.Given(a.UID, a.Revision)
	if !may {
		o.matrix.Step(action.Answer{Action: a, Outcome: action.Failed})
		return
	}
	o.podLane.Submit(func(ctx context.Context) { done(o.exec.pointPod(ctx, ds, a, members)) })
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
	o.podLane.Submit(func(ctx context.Context) { done(action.Answer{Outcome: o.exec.deletePod(ctx, ds, a)}) })
}

// tryPod has a worker try the pod of a variant. What cannot be put together is said when one is made.
func (o *owner) tryPod(t *variants.Trial) {
	ds := t.DaemonSet
	a := &action.CreatePod{Target: action.Target{UID: ds.UID, Namespace: ds.Namespace, Name: ds.Name},
		Node: t.Node, Revision: t.Revision, PodName: podtemplate.NamePrefix(ds.Name) + "trial"}
	of, err := o.molds.For(ds, a)
	if err != nil {
		o.variants.TellVerdict(variants.Verdict{Trial: t})
		return
	}
	o.rowLane.Submit(func(ctx context.Context) {
		v := storing.Try(ctx, o.cfg.Trials, t, of.Pod(a), blamesTemplate)
		o.buffer.result(func(o *owner) { o.variants.TellVerdict(v) })
	})
}

// resizePod gives a running pod other amounts, and then has it be one of the revision. What was done before a crash is
// done once more, and changes nothing. What the API refuses for good is refused.
func (e *executor) resizePod(
	ctx context.Context, ds *appsv1.DaemonSet, a *action.ResizePod, way *resizing.Way,
) action.Answer {
	gone, err := storing.Resize(ctx, e.writer, a, way)
	switch {
	case gone:
		return action.Answer{Outcome: action.Gone}
	case err == nil:
		klog.FromContext(ctx).V(3).Info("Resized pod", "pod", klog.KRef(a.Namespace, a.PodName), "revision", a.Revision)
		e.recorder.Eventf(ds, corev1.EventTypeNormal, "SuccessfulResize", "Pod %s is being resized: %s", a.PodName,
			way.Words())
		return action.Answer{Outcome: action.OK}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		e.recorder.Eventf(ds, corev1.EventTypeNormal, "ResizeNeedsRestart",
			"Pod %s is replaced to get the amounts of revision %s: %v", a.PodName, a.Revision, err)
		return action.Answer{Outcome: action.Failed, Refused: err.Error()}
	case apierrors.IsConflict(err): // it changed meanwhile, and is looked at once more
		klog.FromContext(ctx).V(3).Info("Pod changed before it was resized", "pod", klog.KRef(a.Namespace, a.PodName),
			"err", err)
		return action.Answer{Outcome: action.Failed}
	}
	klog.FromContext(ctx).V(2).Info("Cannot resize pod", "pod", klog.KRef(a.Namespace, a.PodName), "err", err)
	e.recorder.Eventf(ds, corev1.EventTypeWarning, "FailedResize", "Error resizing pod %s: %v", a.PodName, err)
	e.metrics.writesFailed.Inc()
	return action.Answer{Outcome: refused(err)}
}
