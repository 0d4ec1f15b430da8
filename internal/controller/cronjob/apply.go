package cronjob

import (
	"context"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/controller/cronjob/plan"
)

// writer is everything that the controller writes, and what it must not read from
// a cache.
type writer interface {
	GetJob(ctx context.Context, namespace, name string) (*batchv1.Job, error)
	CreateJob(ctx context.Context, j *batchv1.Job) (*batchv1.Job, error)
	// DeleteJob deletes the Job, and its pods in the background.
	DeleteJob(ctx context.Context, j *batchv1.Job) error
	// UpdateStatus fails with a conflict if the CronJob has changed since it was read.
	UpdateStatus(ctx context.Context, c *batchv1.CronJob) (*batchv1.CronJob, error)
}

// overtaken reports whether a write met a newer version of its object, or none.
func overtaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// apply does what was decided. The status comes last: it says what there is then.
func (r *reconciler) apply(ctx context.Context, c *batchv1.CronJob, p plan.Plan) error {
	defer r.jobs.Begin()()
	for _, e := range p.Events {
		r.event(c, e.Type, e.Reason, "%s", e.Message)
	}
	var failure error
	for _, j := range p.History {
		failure = errors.Join(failure, r.deleteJob(ctx, c, j))
	}
	for _, j := range p.Replace {
		if err := r.deleteJob(ctx, c, j); err != nil {
			return errors.Join(failure, err)
		}
	}
	status, changed := p.Status, p.Changed
	if p.Create != nil {
		j, err := r.createJob(ctx, c, p)
		if err != nil {
			return errors.Join(failure, err)
		}
		if j != nil {
			status, changed = p.Started(j), true
		}
	}
	if !changed {
		return failure
	}
	return errors.Join(failure, r.report(ctx, c, status))
}

// createJob makes the Job that is due, or finds it made already. It returns nil if
// none can be.
func (r *reconciler) createJob(ctx context.Context, c *batchv1.CronJob, p plan.Plan) (*batchv1.Job, error) {
	created, err := r.writer.CreateJob(ctx, p.Create)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		live, err := r.writer.GetJob(ctx, c.Namespace, p.Create.Name)
		if err != nil {
			return nil, fmt.Errorf("read Job %s, which is there already: %w", klog.KObj(p.Create), err)
		}
		if !metav1.IsControlledBy(live, c) {
			r.event(c, corev1.EventTypeWarning, "FailedCreate", "Error creating job: another job has the name %s", live.Name)
			return nil, fmt.Errorf("create Job %s: another one has its name", klog.KObj(p.Create))
		}
		return live, nil
	case err != nil:
		r.event(c, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return nil, fmt.Errorf("create Job %s: %w", klog.KObj(p.Create), err)
	}
	r.jobs.Created(c.UID, created)
	r.skew.Observe(max(0, r.clock.Since(p.Due).Seconds()))
	klog.FromContext(ctx).V(3).Info("Created Job", "cronJob", klog.KObj(c), "job", klog.KObj(created))
	r.event(c, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", created.Name)
	return created, nil
}

func (r *reconciler) deleteJob(ctx context.Context, c *batchv1.CronJob, j *batchv1.Job) error {
	err := r.writer.DeleteJob(ctx, j)
	if err != nil && !overtaken(err) {
		r.event(c, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return fmt.Errorf("delete Job %s: %w", klog.KObj(j), err)
	}
	going := *j // a copy of the struct is enough to set a field: the Job is shared
	going.DeletionTimestamp = ptr.To(metav1.NewTime(r.clock.Now()))
	r.jobs.Deleted(c.UID, &going)
	klog.FromContext(ctx).V(3).Info("Deleted Job", "cronJob", klog.KObj(c), "job", klog.KObj(j))
	r.event(c, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", j.Name)
	return nil
}

// report writes the status. If the CronJob has changed meanwhile, that brings us back.
func (r *reconciler) report(ctx context.Context, c *batchv1.CronJob, status batchv1.CronJobStatus) error {
	next := *c // a copy of the struct is enough to set another status: the CronJob is shared
	next.Status = status
	defer r.crons.Begin()()
	after, err := r.writer.UpdateStatus(ctx, &next)
	if overtaken(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("update the status of CronJob %s: %w", klog.KObj(c), err)
	}
	r.crons.Updated(c.UID, after)
	return nil
}

func (r *reconciler) event(c *batchv1.CronJob, kind, reason, format string, args ...any) {
	if r.events != nil {
		r.events.Eventf(c, kind, reason, format, args...)
	}
}

// clientWriter is the writer over client-go.
type clientWriter struct{ client kubernetes.Interface }

// GetJob implements writer.
func (w clientWriter) GetJob(ctx context.Context, namespace, name string) (*batchv1.Job, error) {
	return w.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
}

// CreateJob implements writer.
func (w clientWriter) CreateJob(ctx context.Context, j *batchv1.Job) (*batchv1.Job, error) {
	return w.client.BatchV1().Jobs(j.Namespace).Create(ctx, j, metav1.CreateOptions{})
}

// DeleteJob implements writer.
func (w clientWriter) DeleteJob(ctx context.Context, j *batchv1.Job) error {
	return w.client.BatchV1().Jobs(j.Namespace).Delete(ctx, j.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		Preconditions:     metav1.NewUIDPreconditions(string(j.UID)),
	})
}

// UpdateStatus implements writer.
func (w clientWriter) UpdateStatus(ctx context.Context, c *batchv1.CronJob) (*batchv1.CronJob, error) {
	return w.client.BatchV1().CronJobs(c.Namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{})
}
