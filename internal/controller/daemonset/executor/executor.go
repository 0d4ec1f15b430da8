// Package executor turns the DaemonSet controller's jobs and actions into calls of the API. It is the only part of the
// controller that writes.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/fetches/asking"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/metrics"
	"github.com/everynode/everynode/internal/controller/daemonset/mold"
	"github.com/everynode/everynode/internal/objects/claim"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Executor turns jobs into API calls. Its methods run on workers and return what the owner goroutine must learn.
type Executor struct {
	Writer   Writer
	Rollouts RolloutWriter
	Recorder record.EventRecorder
	Clock    clock.PassiveClock
	Metrics  *metrics.Metrics
	// Normalize fills a template's defaults in; nil does without.
	Normalize func(*corev1.PodTemplateSpec)
}

// CreatePod makes the pod. A pod of that name that is just what the action asks
// for, left by an earlier try, counts as made.
func (e *Executor) CreatePod(
	ctx context.Context, ds *appsv1.DaemonSet, of *mold.Mold, a *action.CreatePod,
) action.Answer {
	created, err := e.Writer.CreatePod(ctx, of.Pod(a))
	switch {
	case err == nil:
		klog.FromContext(ctx).V(3).Info("Created pod", "pod", klog.KRef(a.Namespace, a.PodName), "node", a.Node,
			"reason", a.Reason)
		e.Recorder.Eventf(ds, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", a.PodName)
		e.Metrics.PodsCreated.Inc()
		return action.Answer{Outcome: action.OK, Pod: created.UID}
	case apierrors.IsAlreadyExists(err):
		uid, outcome := e.sameOrTaken(ctx, a)
		return action.Answer{Outcome: outcome, Pod: uid}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return action.Answer{Outcome: action.Failed}
	}
	klog.FromContext(ctx).V(2).Info("Cannot create pod", "pod", klog.KRef(a.Namespace, a.PodName), "node", a.Node,
		"err", err)
	e.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
	e.Metrics.WritesFailed.Inc()
	answer := action.Answer{Outcome: refused(err)}
	if BlamesTemplate(err) {
		answer.Refused = "the API refuses its pod: " + err.Error()
	}
	return answer
}

// BlamesTemplate reports whether the API refuses a pod for what its template says. A quota that is
// used up, and a right that the controller lacks, are somebody else's to mend, and may be at any time.
// The words are those of Kubernetes' admission of quotas and of its authorizers.
func BlamesTemplate(err error) bool {
	if !apierrors.IsForbidden(err) {
		return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
	}
	for _, others := range []string{
		"exceeded quota: ", "insufficient quota to consume: ", "status unknown for quota: ",
		` cannot create resource "pods" `,
	} {
		if strings.Contains(err.Error(), others) {
			return false
		}
	}
	return true
}

// refused tells a write that was refused from one that may have been done: what
// is wrong with a request is found before anything is stored.
func refused(err error) action.Outcome {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if code := status.Status().Code; code >= 400 && code < 500 {
			return action.Failed
		}
	}
	return action.Unknown
}

func (e *Executor) sameOrTaken(ctx context.Context, a *action.CreatePod) (types.UID, action.Outcome) {
	p, err := e.Writer.GetPod(ctx, a.Namespace, a.PodName)
	switch {
	case apierrors.IsNotFound(err):
		return "", action.Failed
	case err != nil:
		return "", action.Unknown
	case belongings.OwnerOf(p) != a.UID || pod.TargetNode(p) != a.Node:
		return "", action.NameTaken
	case pod.IsTerminating(p):
		// Ours, and on its way out without our knowing yet: its place is taken.
		return "", action.Unknown
	}
	return p.UID, action.OK
}

// DeletePod deletes the pod; that it is gone already is as good.
func (e *Executor) DeletePod(ctx context.Context, ds *appsv1.DaemonSet, a *action.DeletePod) action.Outcome {
	e.announce(ds, a)
	err := e.Writer.DeletePod(ctx, a.Namespace, a.PodName, a.PodUID)
	switch {
	case err == nil:
		klog.FromContext(ctx).V(3).Info("Deleted pod", "pod", klog.KRef(a.Namespace, a.PodName), "node", a.Node,
			"reason", a.Reason, "detail", a.Detail)
		e.Recorder.Eventf(ds, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", a.PodName)
		e.Metrics.PodsDeleted.WithLabelValues(string(a.Reason)).Inc()
		return action.OK
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return action.Gone
	}
	klog.FromContext(ctx).V(2).Info("Cannot delete pod", "pod", klog.KRef(a.Namespace, a.PodName), "node", a.Node,
		"err", err)
	e.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
	e.Metrics.WritesFailed.Inc()
	return refused(err)
}

// announce tells users of deletions that they did not cause.
func (e *Executor) announce(ds *appsv1.DaemonSet, a *action.DeletePod) {
	switch a.Reason {
	case action.ReasonFailed:
		e.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedDaemonPod",
			"Found failed daemon pod %s/%s on node %s, will try to kill it", a.Namespace, a.PodName, a.Node)
	case action.ReasonSucceeded:
		e.Recorder.Eventf(ds, corev1.EventTypeNormal, "SucceededDaemonPod",
			"Found succeeded daemon pod %s/%s on node %s, will try to delete it", a.Namespace, a.PodName, a.Node)
	}
}

// UpdateStatus writes the status, after a conflict once more over the newest
// object. It returns what the API then holds, or nil if nothing was written.
func (e *Executor) UpdateStatus(
	ctx context.Context, ds *appsv1.DaemonSet, a *action.UpdateStatus) (*appsv1.DaemonSet, action.Outcome,
) {
	for attempt := 0; ; attempt++ {
		next := *ds
		a.Status.Apply(&next.Status)
		a.Conditions.Apply(&next.Status, e.Clock.Now())
		updated, err := e.Writer.UpdateDaemonSetStatus(ctx, &next)
		if err == nil {
			e.Metrics.StatusWrites.Inc()
			return updated, action.OK
		}
		if apierrors.IsConflict(err) && attempt == 0 {
			ds, err = e.Writer.GetDaemonSet(ctx, a.Namespace, a.Name)
			if err == nil && ds.UID == a.UID {
				continue
			}
		}
		if err == nil || apierrors.IsNotFound(err) {
			return nil, action.Gone
		}
		klog.FromContext(ctx).V(2).Info("Cannot write status", "daemonSet", klog.KRef(a.Namespace, a.Name), "err", err)
		e.Metrics.WritesFailed.Inc()
		return nil, action.Failed
	}
}

// errNotOurs says that the DaemonSet may not adopt any more.
var errNotOurs = errors.New("the DaemonSet is gone, replaced or being deleted")

// mayAdopt asks the API itself, since a cache may not know yet that the
// DaemonSet is on its way out.
func (e *Executor) mayAdopt(ctx context.Context, ds *appsv1.DaemonSet) error {
	live, err := e.Writer.GetDaemonSet(ctx, ds.Namespace, ds.Name)
	switch {
	case apierrors.IsNotFound(err):
		return errNotOurs
	case err != nil:
		return fmt.Errorf("read DaemonSet %s/%s before adopting: %w", ds.Namespace, ds.Name, err)
	case live.UID != ds.UID, live.DeletionTimestamp != nil:
		return errNotOurs
	}
	return nil
}

// ClaimPods adopts and releases. It asks once whether adopting is still right.
func (e *Executor) ClaimPods(ctx context.Context, job *belongings.ClaimJob) belongings.ClaimResult {
	result := belongings.ClaimResult{Job: job}
	note := func(c belongings.ClaimedPod, err error) {
		c.Failed = err != nil && !vanished(err) && !errors.Is(err, errNotOurs)
		if c.Failed {
			klog.FromContext(ctx).V(2).Info("Cannot claim pod", "pod", klog.KObj(c.Pod), "err", err)
		}
		result.Pods = append(result.Pods, c)
	}
	var mayNot error
	if len(job.Adopt) > 0 {
		mayNot = e.mayAdopt(ctx, job.DaemonSet)
	}
	for _, p := range job.Adopt {
		c, err := belongings.ClaimedPod{Pod: p, Adopted: true}, mayNot
		if err == nil {
			patch := claim.AdoptPatch(job.DaemonSet, belongings.Kind, p)
			c.Updated, err = e.Writer.PatchPod(ctx, p.Namespace, p.Name, patch)
			if err != nil {
				c.Updated = nil
			}
		}
		note(c, err)
	}
	for _, p := range job.Release {
		_, err := e.Writer.PatchPod(ctx, p.Namespace, p.Name, claim.ReleasePatch(job.DaemonSet, p))
		note(belongings.ClaimedPod{Pod: p}, err)
	}
	return result
}

// vanished reports whether a patch with a UID precondition met no such object.
func vanished(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err)
}

// PointPod has the volumes of a running pod show the content of a revision, and the pod be one of it: both are
// written at once. What the pod cannot follow, and what the API refuses for good, is refused.
func (e *Executor) PointPod(
	ctx context.Context, ds *appsv1.DaemonSet, a *action.PointPod, members []content.Member,
) action.Answer {
	p, err := e.Writer.GetPod(ctx, a.Namespace, a.PodName)
	switch {
	case apierrors.IsNotFound(err), err == nil && (p.UID != a.PodUID || pod.IsTerminating(p)):
		return action.Answer{Outcome: action.Gone}
	case err != nil:
		return action.Answer{Outcome: refused(err)}
	}
	refuses := func(why error) action.Answer {
		e.Recorder.Eventf(ds, corev1.EventTypeNormal, "ContentNeedsRestart",
			"Pod %s is replaced to get the content of revision %s: %v", a.PodName, a.Revision, why)
		return action.Answer{Outcome: action.Failed, Refused: why.Error()}
	}
	volumes, err := content.Point(&p.Spec, members)
	if err != nil {
		return refuses(err)
	}
	patch, err := pointPatch(p, a, content.Pointing{
		Content: content.IDOf(a.Revision), At: a.At.UTC(), Settle: metav1.Duration{Duration: a.Settle},
		Restarts: pod.Restarts(p), RestartsBy: pod.RestartsBy(p), Was: string(a.Before), Volumes: volumes,
	})
	if err != nil {
		return refuses(err)
	}
	_, err = e.Writer.PatchPod(ctx, a.Namespace, a.PodName, patch)
	switch {
	case err == nil:
		klog.FromContext(ctx).V(3).Info("Pointed pod at content", "pod", klog.KObj(p), "revision", a.Revision)
		e.Recorder.Eventf(ds, corev1.EventTypeNormal, "SuccessfulUpdate",
			"Pod %s is to show the content of revision %s", a.PodName, a.Revision)
		return action.Answer{Outcome: action.OK}
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return action.Answer{Outcome: action.Gone}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return refuses(err)
	}
	klog.FromContext(ctx).V(2).Info("Cannot point pod at content", "pod", klog.KObj(p), "node", a.Node, "err", err)
	e.Recorder.Eventf(ds, corev1.EventTypeWarning, "FailedUpdate", "Error updating: %v", err)
	e.Metrics.WritesFailed.Inc()
	return action.Answer{Outcome: refused(err)}
}

// FetchImages asks the node of a pod for the images of a revision, or takes that back.
func (e *Executor) FetchImages(ctx context.Context, a *action.FetchImages, request *fetch.Request) action.Outcome {
	err := asking.Agent(ctx, e.Writer, a, request, e.Clock.Now())
	switch {
	case err == nil:
		klog.FromContext(ctx).V(3).Info("Asked a node for images", "node", a.Node, "revision", a.Revision)
		return action.OK
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return action.Gone
	}
	klog.FromContext(ctx).V(2).Info("Cannot ask a node for images", "node", a.Node, "err", err)
	e.Metrics.WritesFailed.Inc()
	return refused(err)
}

// pointPatch is the strategic merge patch; the UID in it is a precondition.
func pointPatch(p *corev1.Pod, a *action.PointPod, to content.Pointing) ([]byte, error) {
	text, err := to.Text()
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "labels": map[string]string{content.RevisionLabel: a.Revision},
		"annotations": map[string]string{content.LiveName: text},
	}})
	if err != nil {
		return nil, fmt.Errorf("write the patch of pod %s: %w", p.Name, err)
	}
	return patch, nil
}
