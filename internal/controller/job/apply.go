package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/job/plan"
	"github.com/everynode/everynode/internal/loop/podwriter"
	"github.com/everynode/everynode/internal/loop/slowstart"
)

// writer is everything that the controller writes, and what it must not read from
// a cache.
type writer interface {
	CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error)
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
	// PatchPod sends a strategic merge patch.
	PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	GetJob(ctx context.Context, namespace, name string) (*batchv1.Job, error)
	// UpdateStatus fails with a conflict if the Job has changed since it was read.
	UpdateStatus(ctx context.Context, j *batchv1.Job) (*batchv1.Job, error)
}

// atOnce is how many pods are deleted or let go at a time.
const atOnce = 50

// overtaken reports whether a write met a newer version of its object, or none.
func overtaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// apply creates or deletes pods. The first error is returned.
func (r *reconciler) apply(ctx context.Context, j *batchv1.Job, step plan.Step) error {
	defer r.pods.Begin()()
	if len(step.Create) > 0 {
		return slowstart.Do(len(step.Create), func(i int) error { return r.createPod(ctx, j, step.Create[i]) })
	}
	return each(step.Delete, func(p *corev1.Pod) error { return r.deletePod(ctx, j, p, step.Uncounted) })
}

// each calls f for all pods, some at a time, and returns the first error.
func each(pods []*corev1.Pod, f func(*corev1.Pod) error) (first error) {
	for some := range slices.Chunk(pods, atOnce) {
		if err := slowstart.Together(len(some), func(i int) error { return f(some[i]) }); first == nil {
			first = err
		}
	}
	return first
}

func (r *reconciler) createPod(ctx context.Context, j *batchv1.Job, c plan.Creation) error {
	created, err := r.writer.CreatePod(ctx, plan.Pod(j, c))
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the namespace takes the Job with it
	}
	r.metrics.created(err)
	if err != nil {
		r.event(j, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		return fmt.Errorf("create a pod of Job %s: %w", klog.KObj(j), err)
	}
	r.pods.Created(j.UID, created)
	klog.FromContext(ctx).V(3).Info("Created pod", "job", klog.KObj(j), "pod", klog.KObj(created))
	r.event(j, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", created.Name)
	return nil
}

func (r *reconciler) deletePod(ctx context.Context, j *batchv1.Job, p *corev1.Pod, uncounted bool) error {
	if uncounted {
		after, err := r.letGo(ctx, j, p)
		if err != nil {
			return err
		}
		p = after
	}
	err := r.writer.DeletePod(ctx, p.Namespace, p.Name, p.UID)
	switch {
	case overtaken(err): // gone, or another pod has its name
	case err != nil:
		r.event(j, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return fmt.Errorf("delete pod %s of Job %s: %w", klog.KObj(p), klog.KObj(j), err)
	default:
		klog.FromContext(ctx).V(3).Info("Deleted pod", "job", klog.KObj(j), "pod", klog.KObj(p))
		r.event(j, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", p.Name)
	}
	now := metav1.NewTime(r.clock.Now())
	going := *p // a copy of the struct is enough to set a field: the pod is shared
	going.DeletionTimestamp = &now
	r.pods.Deleted(j.UID, &going)
	return nil
}

// errGone says that a pod is there no more although the cache shows it: what the
// cache tells next brings us back.
var errGone = errors.New("the pod is gone")

// release lets pods go that are counted, or need not be.
func (r *reconciler) release(ctx context.Context, j *batchv1.Job, pods []*corev1.Pod) error {
	defer r.pods.Begin()()
	return each(pods, func(p *corev1.Pod) error {
		_, err := r.letGo(ctx, j, p)
		return err
	})
}

// letGo takes the finalizer off a pod, and returns the pod as it is then.
func (r *reconciler) letGo(ctx context.Context, j *batchv1.Job, p *corev1.Pod) (*corev1.Pod, error) {
	after, err := r.writer.PatchPod(ctx, p.Namespace, p.Name, letGoPatch(p, ""))
	switch {
	case err == nil:
		r.pods.Updated(j.UID, after)
		return after, nil
	case overtaken(err) || apierrors.IsInvalid(err): // another pod has its name
		err = errGone
	}
	return nil, fmt.Errorf("let go pod %s of Job %s: %w", klog.KObj(p), klog.KObj(j), err)
}

// letGoPatch takes the finalizer off exactly this pod, in this version if one is given.
func letGoPatch(p *corev1.Pod, version string) []byte {
	metadata := map[string]any{"uid": p.UID, "$deleteFromPrimitiveList/finalizers": []string{batchv1.JobTrackingFinalizer}}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	b, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic("job: a finalizer does not marshal: " + err.Error())
	}
	return b
}

// report writes the status and tells of it. It returns the Job as it is then; nil if
// the Job has changed meanwhile, which brings us back.
func (r *reconciler) report(ctx context.Context, j *batchv1.Job, step plan.Step) (*batchv1.Job, error) {
	next := *j // a copy of the struct is enough to set another status: the Job is shared
	next.Status = *step.Status
	defer r.jobs.Begin()()
	after, err := r.writer.UpdateStatus(ctx, &next)
	if overtaken(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("update the status of Job %s: %w", klog.KObj(j), err)
	}
	r.jobs.Updated(j.UID, after)
	r.metrics.reported(j, after, step.Ended)
	for _, e := range step.Events {
		r.event(j, e.Type, e.Reason, "%s", e.Message)
	}
	return after, nil
}

func (r *reconciler) event(j *batchv1.Job, kind, reason, format string, args ...any) {
	if r.events != nil {
		r.events.Eventf(j, kind, reason, format, args...)
	}
}

// clientWriter is the writer over client-go.
type clientWriter struct{ podwriter.Writer }

// GetJob implements writer.
func (w clientWriter) GetJob(ctx context.Context, namespace, name string) (*batchv1.Job, error) {
	return w.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

// UpdateStatus implements writer.
func (w clientWriter) UpdateStatus(ctx context.Context, j *batchv1.Job) (*batchv1.Job, error) {
	return w.Client.BatchV1().Jobs(j.Namespace).UpdateStatus(ctx, j, metav1.UpdateOptions{})
}
