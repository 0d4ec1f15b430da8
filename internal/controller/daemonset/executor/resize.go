package executor

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
)

// ResizePod gives a running pod other amounts, and then has it be one of the revision. What was done before a crash is
// done once more, and changes nothing. What the API refuses for good is refused.
func (e *Executor) ResizePod(
	ctx context.Context, ds *appsv1.DaemonSet, a *action.ResizePod, way *resizing.Way,
) action.Answer {
	gone, err := storing.Resize(ctx, e.Writer, a, way)
	switch {
	case gone:
		return action.Answer{Outcome: action.Gone}
	case err == nil:
		klog.FromContext(ctx).V(3).Info("Resized pod", "pod", klog.KRef(a.Namespace, a.PodName), "revision", a.Revision)
		e.Recorder.Eventf(ds, corev1.EventTypeNormal, "SuccessfulResize", "Pod %s is being resized: %s", a.PodName,
			way.Words())
		return action.Answer{Outcome: action.OK}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		e.Recorder.Eventf(ds, corev1.EventTypeNormal, "ResizeNeedsRestart",
			"Pod %s is replaced to get the amounts of revision %s: %v", a.PodName, a.Revision, err)
		return action.Answer{Outcome: action.Failed, Refused: err.Error()}
	case apierrors.IsConflict(err): // it changed meanwhile, and is looked at once more
		klog.FromContext(ctx).V(3).Info("Pod changed before it was resized", "pod", klog.KRef(a.Namespace, a.PodName),
			"err", err)
		return action.Answer{Outcome: action.Failed}
	}
	klog.FromContext(ctx).V(2).Info("Cannot resize pod", "pod", klog.KRef(a.Namespace, a.PodName), "err", err)
	e.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedResize", "Error resizing pod %s: %v", a.PodName, err)
	e.Metrics.WritesFailed.Inc()
	return action.Answer{Outcome: refused(err)}
}
