package plan

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/job"
)

func (s *sight) condition(t batchv1.JobConditionType, status corev1.ConditionStatus,
	reason, message string) *batchv1.JobCondition {
	now := metav1.NewTime(s.Now)
	return &batchv1.JobCondition{
		Type:               t,
		Status:             status,
		Reason:             reason,
		Message:            message,
		LastProbeTime:      now,
		LastTransitionTime: now,
	}
}

// ending returns the condition SuccessCriteriaMet or FailureTarget if the Job is to
// end. What was said once stays; otherwise failure goes before success.
func (s *sight) ending() *batchv1.JobCondition {
	for _, t := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget} {
		if job.Is(s.Job, t) {
			return job.Condition(s.Job, t)
		}
	}
	if reason, message := s.failure(); reason != "" {
		return s.condition(batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message)
	}
	if s.indexed {
		if i := successRule(s.Job, s.done); i >= 0 {
			return s.condition(
				batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonSuccessPolicy,
				fmt.Sprintf("Matched rules at index %d", i),
			)
		}
	}
	if s.Job.DeletionTimestamp == nil && s.complete() {
		return s.condition(
			batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached,
			"Reached expected number of succeeded pods",
		)
	}
	return nil
}

// failure says why the Job fails, if it does.
func (s *sight) failure() (reason, message string) {
	for _, p := range s.Pods {
		if hasFailed(s.Job, p) {
			if m := match(s.Job, p); m.action == batchv1.PodFailurePolicyActionFailJob {
				return batchv1.JobReasonPodFailurePolicy, m.why
			}
		}
	}
	deadline := s.deadline()
	switch {
	case s.failed > int(ptr.Deref(s.Job.Spec.BackoffLimit, 0)) || s.restartedTooOften():
		return batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	case !deadline.IsZero() && !s.Now.Before(deadline):
		return batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"
	case !s.indexed || !s.perIndex:
		return "", ""
	case s.Job.Spec.MaxFailedIndexes != nil && s.lost.Len() > int(*s.Job.Spec.MaxFailedIndexes):
		return batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
	case len(s.lost) > 0 && s.lost.Len()+s.done.Len() >= s.completions:
		return batchv1.JobReasonFailedIndexes, "Job has failed indexes"
	}
	return "", ""
}

// restartedTooOften looks at containers that are started again in place.
func (s *sight) restartedTooOften() bool {
	if s.Job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, p := range s.Pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			for i := range list {
				restarts += list[i].RestartCount
			}
		}
	}
	return restarts > 0 && restarts >= ptr.Deref(s.Job.Spec.BackoffLimit, 0)
}

// complete reports whether as many pods as wanted have succeeded and none is left. A
// Job without a number is complete when one of its pods has succeeded.
func (s *sight) complete() bool {
	if len(s.active) > 0 {
		return false
	}
	if s.Job.Spec.Completions == nil {
		return s.succeeded > 0
	}
	return s.succeeded >= int(*s.Job.Spec.Completions)
}

// fill makes a status say what there is. It returns what to tell of it, and the
// condition with which the Job is over, if it is.
func (s *sight) fill(status *batchv1.JobStatus) (events []Event, ended *batchv1.JobCondition) {
	status.Active, status.Ready, status.Terminating = int32(len(s.active)), ptr.To(s.ready), ptr.To(int32(len(
		s.terminating,
	)))
	if status.UncountedTerminatedPods == nil {
		status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	s.settle(status)
	s.note(status)
	if s.indexed {
		status.CompletedIndexes, status.Succeeded = s.done.String(), int32(s.done.Len())
		status.FailedIndexes = nil
		if s.perIndex {
			status.FailedIndexes = ptr.To(s.lost.String())
		}
	}
	if status.StartTime == nil && (!job.IsSuspended(s.Job) || s.end != nil) {
		status.StartTime = ptr.To(metav1.NewTime(s.Now))
	}
	if s.end == nil || !job.IsSuspended(s.Job) { // one that ends may have been resumed, and nobody has noted it yet
		events = s.noteSuspension(status)
	}
	if s.end == nil {
		return events, nil
	}
	set(status, s.end)
	if len(s.active) > 0 || len(s.terminating) > 0 || s.unsettled(status) {
		return events, nil
	}
	ended = s.condition(batchv1.JobFailed, corev1.ConditionTrue, s.end.Reason, s.end.Message)
	if s.end.Type == batchv1.JobSuccessCriteriaMet {
		ended.Type, status.CompletionTime = batchv1.JobComplete, &ended.LastTransitionTime
	}
	set(status, ended)
	return append(events, s.tellEnd(ended)...), ended
}

func (s *sight) tellEnd(ended *batchv1.JobCondition) (out []Event) {
	if ended.Type == batchv1.JobFailed {
		return []Event{{corev1.EventTypeWarning, ended.Reason, ended.Message}}
	}
	if want := s.Job.Spec.Completions; want != nil && s.succeeded > int(*want) {
		out = append(out, Event{
			corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached",
		})
	}
	return append(out, Event{corev1.EventTypeNormal, "Completed", "Job completed"})
}

// set puts a condition into the status. One that says the same stays as it is.
func set(status *batchv1.JobStatus, c *batchv1.JobCondition) bool {
	i := slices.IndexFunc(status.Conditions, func(old batchv1.JobCondition) bool { return old.Type == c.Type })
	switch {
	case i < 0 && c.Status == corev1.ConditionFalse:
		return false // from nothing to false is no news
	case i < 0:
		status.Conditions = append(status.Conditions, *c)
		return true
	}
	if old := status.Conditions[i]; old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		return false
	}
	status.Conditions[i] = *c
	return true
}

func (s *sight) noteSuspension(status *batchv1.JobStatus) []Event {
	if s.Job.DeletionTimestamp != nil {
		return nil
	}
	if job.IsSuspended(s.Job) {
		if len(s.active) == 0 &&
			set(status, s.condition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")) {
			return []Event{{corev1.EventTypeNormal, "Suspended", "Job suspended"}}
		}
		return nil
	}
	if set(status, s.condition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")) {
		status.StartTime = ptr.To(metav1.NewTime(s.Now)) // the deadline counts from here
		return []Event{{corev1.EventTypeNormal, "Resumed", "Job resumed"}}
	}
	return nil
}

// settle counts the pods whose UIDs are in the status and that have been let go.
func (s *sight) settle(status *batchv1.JobStatus) {
	waiting := map[types.UID]bool{}
	for _, p := range s.Pods {
		waiting[p.UID] = isTracked(p)
	}
	u := status.UncountedTerminatedPods
	take := func(uids []types.UID) ([]types.UID, int32) {
		left := slices.DeleteFunc(slices.Clone(uids), func(uid types.UID) bool { return !waiting[uid] })
		if len(left) == 0 {
			return nil, int32(len(uids))
		}
		return left, int32(len(uids) - len(left))
	}
	var succeeded, failed int32
	u.Succeeded, succeeded = take(u.Succeeded)
	u.Failed, failed = take(u.Failed)
	status.Failed += failed
	status.Succeeded += succeeded
}

// note writes down the UIDs of pods that ended and are to be let go, as many as
// there is room for.
func (s *sight) note(status *batchv1.JobStatus) {
	u := status.UncountedTerminatedPods
	for _, p := range s.Pods {
		if len(u.Succeeded)+len(u.Failed) >= mostUncounted {
			return
		}
		switch s.verdict(p) {
		case countSucceeded:
			u.Succeeded = append(u.Succeeded, p.UID)
		case countFailed:
			u.Failed = append(u.Failed, p.UID)
		}
	}
}

// unsettled reports whether pods have yet to be counted.
func (s *sight) unsettled(status *batchv1.JobStatus) bool {
	u := status.UncountedTerminatedPods
	return len(u.Succeeded)+len(u.Failed) > 0 || slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool {
		v := s.verdict(p)
		return v == countSucceeded || v == countFailed
	})
}

// verdict is what to do about a pod.
type verdict uint8

const (
	keep verdict = iota
	countSucceeded
	countFailed
	letGo // it is counted, or need not be
)

// verdict says what to do about one pod.
func (s *sight) verdict(p *corev1.Pod) verdict {
	switch {
	case !isTracked(p):
		return keep
	case s.inSucceeded[p.UID] || s.inFailed[p.UID]:
		return letGo
	case p.Status.Phase != corev1.PodSucceeded:
		return s.verdictOfFailed(p)
	case !s.indexed:
		return countSucceeded
	case s.valid(p) && !s.doneBefore.Has(indexOf(p)):
		return keep // until the set of indexes has it
	}
	return letGo
}

// verdictOfFailed says what to do about a pod that failed, or has not ended.
func (s *sight) verdictOfFailed(p *corev1.Pod) verdict {
	failed := hasFailed(s.Job, p)
	over := s.end != nil && len(s.active) == 0
	switch {
	case failed && !over && s.Job.DeletionTimestamp == nil && s.awaited[indexOf(p)] == p:
		return keep
	case failed || over && s.end.Type == batchv1.JobFailureTarget:
		if !s.valid(p) || !counts(s.Job, p) {
			return letGo
		}
		return countFailed
	case over || s.Job.DeletionTimestamp != nil:
		return letGo
	}
	return keep
}

// release lists the pods to let go.
func (s *sight) release() (out []*corev1.Pod) {
	for _, p := range s.Pods {
		if s.verdict(p) == letGo {
			out = append(out, p)
		}
	}
	return first(out, burst)
}
