package job

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/objects/indexset"
	"github.com/everynode/everynode/internal/objects/job"
)

// ValidateStatusUpdate checks a status that a controller reports, ours or another.
func ValidateStatusUpdate(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("status")
	errs := validateCounts(&j.Status, path)
	errs = append(errs, validateEnd(j, path)...)
	errs = append(errs, validateIndexes(j, old, path)...)
	return append(errs, validateCourse(j, old, path)...)
}

func validateCounts(s *batchv1.JobStatus, path *field.Path) field.ErrorList {
	errs := amount.NonNegative(path.Child("active"), int64(s.Active))
	errs = append(errs, amount.NonNegative(path.Child("succeeded"), int64(s.Succeeded))...)
	errs = append(errs, amount.NonNegative(path.Child("failed"), int64(s.Failed))...)
	errs = append(errs, amount.NonNegative(path.Child("ready"), int64(ptr.Deref(s.Ready, 0)))...)
	errs = append(errs, amount.NonNegative(path.Child("terminating"), int64(ptr.Deref(s.Terminating, 0)))...)
	if ready := ptr.Deref(s.Ready, 0); ready > s.Active {
		errs = append(errs, field.Invalid(path.Child("ready"), ready, "cannot set more ready pods than active"))
	}
	if s.UncountedTerminatedPods == nil {
		return errs
	}
	seen := map[types.UID]bool{}
	check := func(at *field.Path, uids []types.UID) {
		for i, uid := range enough.Each(uids, &errs) {
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at.Index(i), uid, "must not be empty"))
			case seen[uid]:
				errs = append(errs, field.Duplicate(at.Index(i), uid))
			}
			seen[uid] = true
		}
	}
	at := path.Child("uncountedTerminatedPods")
	check(at.Child("succeeded"), s.UncountedTerminatedPods.Succeeded)
	check(at.Child("failed"), s.UncountedTerminatedPods.Failed)
	return errs
}

// validateEnd checks that the status does not say two things about how the Job
// ends, and that nothing is left to do for one that is over.
func validateEnd(j *batchv1.Job, path *field.Path) (errs field.ErrorList) {
	s, conditions := &j.Status, path.Child("conditions")
	complete, failed := job.Is(j, batchv1.JobComplete), job.Is(j, batchv1.JobFailed)
	met, target := job.Is(j, batchv1.JobSuccessCriteriaMet), job.Is(j, batchv1.JobFailureTarget)
	for _, c := range []struct {
		wrong bool
		text  string
	}{
		{complete && failed, "cannot set Complete=True and Failed=true conditions"},
		{complete && target, "cannot set Complete=True and FailureTarget=true conditions"},
		{failed && !target, "cannot set Failed=True condition without the FailureTarget=true condition"},
		{complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"},
		{met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"},
		{met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"},
	} {
		if c.wrong {
			errs = append(errs, field.Invalid(conditions, field.OmitValueType{}, c.text))
		}
	}
	errs = append(errs, validateCompletionTime(s, complete, path.Child("completionTime"))...)
	if complete || failed {
		errs = append(errs, validateFinished(s, path)...)
	}
	return errs
}

func validateCompletionTime(s *batchv1.JobStatus, complete bool, end *field.Path) (errs field.ErrorList) {
	switch {
	case s.CompletionTime != nil && !complete:
		errs = append(errs, field.Invalid(
			end, s.CompletionTime, "cannot set completionTime when there is no Complete=True condition",
		))
	case s.CompletionTime == nil && complete:
		errs = append(errs, field.Required(end, "completionTime is required for Complete jobs"))
	}
	if s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		errs = append(errs, field.Invalid(end, s.CompletionTime, "must be equal to or after `startTime`"))
	}
	return errs
}

func validateFinished(s *batchv1.JobStatus, path *field.Path) (errs field.ErrorList) {
	if s.Active > 0 {
		errs = append(errs, field.Invalid(path.Child("active"), s.Active, "active>0 is invalid for finished job"))
	}
	if s.StartTime == nil {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime is required for finished job"))
	}
	if u := s.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		errs = append(errs, field.Invalid(path.Child("uncountedTerminatedPods"), u, "must be empty for finished job"))
	}
	if n := ptr.Deref(s.Terminating, 0); n > 0 {
		errs = append(errs, field.Invalid(path.Child("terminating"), n, "terminating>0 is invalid for finished job"))
	}
	return errs
}

// validateIndexes checks the sets of indexes if they are new: an Indexed Job that
// was made smaller keeps those of before until its controller has seen it.
func validateIndexes(j, old *batchv1.Job, path *field.Path) (errs field.ErrorList) {
	s, completions := &j.Status, int(ptr.Deref(j.Spec.Completions, 0))
	atDone, atFailed := path.Child("completedIndexes"), path.Child("failedIndexes")
	doneNew, failedNew := s.CompletedIndexes != old.Status.CompletedIndexes, !ptr.Equal(
		s.FailedIndexes, old.Status.FailedIndexes,
	)
	if !job.IsIndexed(j) && s.CompletedIndexes != "" {
		errs = append(errs, field.Invalid(
			atDone, s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode",
		))
	}
	if j.Spec.BackoffLimitPerIndex == nil && s.FailedIndexes != nil {
		errs = append(errs, field.Invalid(
			atFailed, *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
		))
	}
	if j.Spec.Completions == nil {
		return errs
	}
	if _, err := indexset.Parse(s.CompletedIndexes, completions); err != nil && doneNew {
		errs = append(errs, field.Invalid(atDone, s.CompletedIndexes, "error parsing completedIndexes: "+err.Error()))
	}
	if s.FailedIndexes == nil {
		return errs
	}
	if _, err := indexset.Parse(*s.FailedIndexes, completions); err != nil && failedNew {
		errs = append(errs, field.Invalid(atFailed, *s.FailedIndexes, "error parsing failedIndexes: "+err.Error()))
	}
	if both := indexset.Read(s.CompletedIndexes, completions).
		Common(indexset.Read(*s.FailedIndexes, completions)); len(both) > 0 && (doneNew || failedNew) {
		errs = append(errs, field.Invalid(
			atFailed, *s.FailedIndexes, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", both[0].First),
		))
	}
	return errs
}

// validateCourse checks that nothing is taken back.
func validateCourse(j, old *batchv1.Job, path *field.Path) (errs field.ErrorList) {
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		if job.Is(old, t) && !job.Is(j, t) {
			errs = append(errs, field.Invalid(
				path.Child("conditions"), field.OmitValueType{}, fmt.Sprintf("cannot disable the terminal %s=True condition", t),
			))
		}
	}
	if job.Is(old, batchv1.JobSuccessCriteriaMet) && !job.Is(j, batchv1.JobSuccessCriteriaMet) {
		errs = append(errs, field.Invalid(
			path.Child("conditions"), field.OmitValueType{}, "cannot disable the SuccessCriteriaMet=True condition",
		))
	}
	errs = append(errs, validateNumbers(j, old, path)...)
	return append(errs, validateTimes(j, old, path)...)
}

func validateNumbers(j, old *batchv1.Job, path *field.Path) (errs field.ErrorList) {
	s, before := &j.Status, &old.Status
	if s.Failed < before.Failed {
		errs = append(errs, field.Invalid(path.Child("failed"), s.Failed, "cannot decrease the failed counter"))
	}
	if s.Succeeded < before.Succeeded && !job.IsIndexed(j) {
		errs = append(errs, field.Invalid(path.Child("succeeded"), s.Succeeded, "cannot decrease the succeeded counter"))
	}
	return errs
}

func validateTimes(j, old *batchv1.Job, path *field.Path) (errs field.ErrorList) {
	s, before := &j.Status, &old.Status
	if s.CompletionTime != nil && before.CompletionTime != nil && !s.CompletionTime.Equal(before.CompletionTime) {
		errs = append(errs, field.Invalid(path.Child("completionTime"), s.CompletionTime, "field is immutable"))
	}
	if before.StartTime != nil && !before.StartTime.Equal(s.StartTime) && !job.IsSuspended(j) && !resumed(j, old) {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime cannot be removed for unsuspended job"))
	}
	return errs
}

// resumed reports whether the status takes notice that the Job is suspended no
// longer: then its time begins again.
func resumed(j, old *batchv1.Job) bool {
	return job.Is(old, batchv1.JobSuspended) && !job.Is(j, batchv1.JobSuspended)
}
