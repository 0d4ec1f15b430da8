package daemonset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// rolloutRows is what rollouts tell and ask. What they tell goes through all books; where a rollout stands is said in
// revisions with all their parts, by which people approve them and failures are remembered.
type rolloutRows struct {
	*contents.Book
	rows decisions
}

// Rollout is where the rollout of a DaemonSet stands.
func (r rolloutRows) Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	return r.rows.Rollout(uid)
}

// updateRollout writes where a rollout stands, over the newest object. It returns what
// the API then holds, or nil if that is not all of it. One that another DaemonSet of the name
// has left is taken over when its status is of this one: whoever dies before that leaves
// nothing that passes for the new one's. One that has gone is not made again before its end is seen: there may be none
// any more, or a paused one.
func (e *executor) updateRollout(ctx context.Context, ds *appsv1.DaemonSet, have *v1alpha1.DaemonSetRollout,
	a *action.UpdateRollout) (*v1alpha1.DaemonSetRollout, action.Outcome) {
	var err error
	for range 3 {
		if have, err = e.someRollout(ctx, ds, have, a.PausedWhy); err == nil {
			next := have.DeepCopy()
			next.Status = *a.Status.DeepCopy()
			next.Status.Conditions = rollouts.Conditions(&next.Status, have.Status.Conditions, e.clock.Now())
			meta.RemoveStatusCondition(&next.Status.Conditions, rollouts.DaemonSetGone)
			meta.RemoveStatusCondition(&next.Status.Conditions, rollouts.PolicyGone)
			if next, err = e.rollouts.UpdateRolloutStatus(ctx, next); err == nil {
				e.metrics.statusWrites.Inc()
				next, err = e.takeOver(ctx, ds, next)
			}
			if err == nil {
				return next, action.OK
			}
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
		latest, unread := e.rollouts.GetRollout(ctx, a.Namespace, a.Name)
		if unread != nil {
			err = unread
			break
		}
		if have != nil && isOfNext(ds, have, latest) {
			break
		}
		have = latest
	}
	klog.FromContext(ctx).Info("Cannot write where a rollout stands, will try again", "daemonSet", klog.KObj(ds), "err",
		err)
	e.metrics.writesFailed.Inc()
	return nil, rollouts.OutcomeOf(err)
}

// isOfNext reports whether another DaemonSet of the name has taken the rollout over: this one is gone, and where it
// stood must not pass for where that one does.
func isOfNext(ds *appsv1.DaemonSet, had, latest *v1alpha1.DaemonSetRollout) bool {
	of := latest.Labels[rollouts.OwnerLabel]
	return of != string(ds.UID) && of != had.Labels[rollouts.OwnerLabel]
}

// someRollout makes sure that there is a rollout. One that is made is paused if there is a
// reason.
func (e *executor) someRollout(ctx context.Context, ds *appsv1.DaemonSet, have *v1alpha1.DaemonSetRollout,
	pausedWhy string) (*v1alpha1.DaemonSetRollout, error) {
	if have != nil {
		return have, nil
	}
	next := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{
		Namespace: ds.Namespace, Name: ds.Name, Labels: map[string]string{rollouts.OwnerLabel: string(ds.UID)},
	}}
	if pausedWhy != "" {
		next.Spec.Paused = true
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, rollouts.PausedBecause, pausedWhy)
	}
	created, err := e.rollouts.CreateRollout(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("make the rollout of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	return created, nil
}

// takeOver makes sure that the rollout says whose it is.
func (e *executor) takeOver(ctx context.Context, ds *appsv1.DaemonSet,
	have *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error) {
	if have.Labels[rollouts.OwnerLabel] == string(ds.UID) {
		return have, nil
	}
	next := have.DeepCopy()
	metav1.SetMetaDataLabel(&next.ObjectMeta, rollouts.OwnerLabel, string(ds.UID))
	updated, err := e.rollouts.UpdateRollout(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("take over rollout %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	return updated, nil
}

// carryOut does a job of the book of rollouts.
func (e *executor) carryOut(ctx context.Context, j *rollouts.Job) rollouts.Result {
	r := rollouts.Result{Job: j}
	var err error
	switch {
	case j.Policy != nil:
		r.Policy, err = e.rollouts.UpdatePolicyStatus(ctx, j.Policy)
		if err != nil {
			r.Policy = nil
		}
	case j.Left != nil:
		r.Rollout, err = e.rollouts.UpdateRolloutStatus(ctx, j.Left)
		if err != nil {
			r.Rollout = nil
		}
	default:
		err = e.rollouts.DeleteRollout(ctx, j.Delete)
	}
	// What is gone needs no status, and what changed will be looked at again.
	r.Failed = err != nil && !apierrors.IsNotFound(err)
	if r.Failed {
		klog.FromContext(ctx).V(2).Info("Cannot write about a rollout, will try again", "err", err)
		e.metrics.writesFailed.Inc()
	}
	return r
}

// tell makes an event of what is new about a rollout.
func (o *owner) tell(ds *appsv1.DaemonSet, a *action.RolloutNews) {
	kind := corev1.EventTypeNormal
	if a.Warning {
		kind = corev1.EventTypeWarning
	}
	o.cfg.Recorder.Event(ds, kind, a.Event, a.Message)
}
