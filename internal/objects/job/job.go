// Package job answers questions of fact about a Job: is it over, and how did it
// end. It reads nothing but its arguments.
package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Condition returns the Job's condition of the given type, or nil.
func Condition(j *batchv1.Job, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		if j.Status.Conditions[i].Type == t {
			return &j.Status.Conditions[i]
		}
	}
	return nil
}

// Is reports whether the Job's condition of the given type is True.
func Is(j *batchv1.Job, t batchv1.JobConditionType) bool {
	c := Condition(j, t)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Finished returns the condition by which the Job is over, Complete or Failed; nil
// while it is not.
func Finished(j *batchv1.Job) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// IsIndexed reports whether each pod of the Job has a completion index.
func IsIndexed(j *batchv1.Job) bool {
	return j.Spec.CompletionMode != nil && *j.Spec.CompletionMode == batchv1.IndexedCompletion
}

// IsSuspended reports whether the Job is to have no pods for now.
func IsSuspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }
