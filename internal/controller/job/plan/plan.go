// Package plan decides what a Job needs, one step at a time: pods to create and to
// delete, a status to write, pods to let go. It reads nothing but its arguments.
//
// No finished pod is counted twice and none is lost, whenever the controller dies.
// For this each pod has the finalizer batch.kubernetes.io/job-tracking, and a pod
// that ended is counted in three writes, each a step:
//
//  1. its UID is put among the uncounted ones of the status;
//  2. its finalizer is taken off;
//  3. its UID makes place for one more in the status' number.
//
// Of an Indexed Job the index of a pod that succeeded says enough: the set of
// completed indexes cannot count twice.
package plan

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/job"
)

const (
	// burst is how many pods are created or deleted before looking again.
	burst = 500
	// mostUncounted keeps the status small: pods that ended wait for their turn.
	mostUncounted = 500
)

// Input is what a decision is made from. Nothing in it is changed.
type Input struct {
	Job *batchv1.Job
	// Pods are all that belong to the Job, whatever became of them.
	Pods []*corev1.Pod
	// Failures is what is remembered of the pods that failed, of those too that are
	// gone. Remember adds those that are there.
	Failures Failures
	// Hold means that no pod is to be created or deleted now: it was tried.
	Hold bool
	Now  time.Time
}

// Event is something to tell users.
type Event struct{ Type, Reason, Message string }

// Step is the next thing to do. At most one of Delete, Create, Status and Release is
// set; with none there is nothing to do until Next.
type Step struct {
	// Delete are pods to delete. With Uncounted they are let go first: they did not
	// end, nobody wants them any more.
	Delete    []*corev1.Pod
	Uncounted bool
	// Create are pods to make.
	Create []Creation
	// Status is what the Job's status shall say. Events are for when it does.
	Status *batchv1.JobStatus
	Events []Event
	// Ended is the condition with which the Job is over, in Status.
	Ended *batchv1.JobCondition
	// Release are pods to let go: they are counted, or need not be.
	Release []*corev1.Pod
	// Next is when to look again although nothing has happened; zero for never.
	Next time.Time
	// Reason says why, also if there is nothing to do.
	Reason string
}

// Mine reports whether this controller, and not another program, keeps the Job.
func Mine(j *batchv1.Job) bool {
	return ptr.Deref(j.Spec.ManagedBy, batchv1.JobControllerName) == batchv1.JobControllerName
}

// Next returns the next step.
func Next(in Input) Step {
	if !Mine(in.Job) {
		return Step{Reason: "another controller manages the Job: " + *in.Job.Spec.ManagedBy}
	}
	if end := job.Finished(in.Job); end != nil {
		return Step{Release: first(tracked(in.Pods), burst), Reason: fmt.Sprintf("the Job is over: %s", end.Type)}
	}
	s := look(in)
	status := in.Job.Status.DeepCopy()
	events, ended := s.fill(status)
	// That the Job is to end is written down before its pods are deleted: their
	// failures are not what it ends with.
	ending := s.end != nil && len(status.Conditions) > len(in.Job.Status.Conditions) && ended == nil
	if !ending && !in.Hold && in.Job.DeletionTimestamp == nil {
		if step := s.manage(); step.Delete != nil || step.Create != nil {
			return step
		}
	}
	if !apiequality.Semantic.DeepEqual(in.Job.Status, *status) {
		return Step{Status: status, Events: events, Ended: ended, Reason: "the status is not what there is"}
	}
	if release := s.release(); len(release) > 0 {
		return Step{Release: release, Reason: fmt.Sprintf("%d pods that ended are counted, or need not be", len(release))}
	}
	return Step{Next: s.next(), Reason: fmt.Sprintf("%d pods are active", len(s.active))}
}

// More reports whether there are pods to create or delete once Hold is over.
func More(in Input) bool {
	in.Hold = false
	step := Next(in)
	return len(step.Delete)+len(step.Create) > 0
}
