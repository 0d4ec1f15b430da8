package executor

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// UpdateRollout writes where a rollout stands, over the newest object. It returns what
// the API then holds, or nil if that is not all of it. One that another DaemonSet of the name
// has left is taken over when its status is of this one: whoever dies before that leaves
// nothing that passes for the new one's. One that has gone is not made again before its end is seen: there may be none
// any more, or a paused one.
func (e *Executor) UpdateRollout(ctx context.Context, ds *appsv1.DaemonSet, have *v1alpha1.DaemonSetRollout,
	a *action.UpdateRollout) (*v1alpha1.DaemonSetRollout, action.Outcome) {
	var err error
	for range 3 {
		if have, err = e.someRollout(ctx, ds, have, a.PausedWhy); err == nil {
			next := have.DeepCopy()
			next.Status = *a.Status.DeepCopy()
			next.Status.Conditions = rollouts.Conditions(&next.Status, have.Status.Conditions, e.Clock.Now())
			meta.RemoveStatusCondition(&next.Status.Conditions, rollouts.DaemonSetGone)
			meta.RemoveStatusCondition(&next.Status.Conditions, rollouts.PolicyGone)
			if next, err = e.Rollouts.UpdateRolloutStatus(ctx, next); err == nil {
				e.Metrics.StatusWrites.Inc()
				next, err = e.takeOver(ctx, ds, next)
			}
			if err == nil {
				return next, action.OK
			}
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
		latest, unread := e.Rollouts.GetRollout(ctx, a.Namespace, a.Name)
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
	e.Metrics.WritesFailed.Inc()
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
func (e *Executor) someRollout(ctx context.Context, ds *appsv1.DaemonSet, have *v1alpha1.DaemonSetRollout,
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
	created, err := e.Rollouts.CreateRollout(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("make the rollout of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	return created, nil
}

// takeOver makes sure that the rollout says whose it is.
func (e *Executor) takeOver(ctx context.Context, ds *appsv1.DaemonSet,
	have *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error) {
	if have.Labels[rollouts.OwnerLabel] == string(ds.UID) {
		return have, nil
	}
	next := have.DeepCopy()
	metav1.SetMetaDataLabel(&next.ObjectMeta, rollouts.OwnerLabel, string(ds.UID))
	updated, err := e.Rollouts.UpdateRollout(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("take over rollout %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	return updated, nil
}

// CarryOut does a job of the book of rollouts.
func (e *Executor) CarryOut(ctx context.Context, j *rollouts.Job) rollouts.Result {
	r := rollouts.Result{Job: j}
	var err error
	switch {
	case j.Policy != nil:
		r.Policy, err = e.Rollouts.UpdatePolicyStatus(ctx, j.Policy)
		if err != nil {
			r.Policy = nil
		}
	case j.Left != nil:
		r.Rollout, err = e.Rollouts.UpdateRolloutStatus(ctx, j.Left)
		if err != nil {
			r.Rollout = nil
		}
	default:
		err = e.Rollouts.DeleteRollout(ctx, j.Delete)
	}
	// What is gone needs no status, and what changed will be looked at again.
	r.Failed = err != nil && !apierrors.IsNotFound(err)
	if r.Failed {
		klog.FromContext(ctx).V(2).Info("Cannot write about a rollout, will try again", "err", err)
		e.Metrics.WritesFailed.Inc()
	}
	return r
}
