// Package job describes the kind Job of batch/v1.
package job

import (
	"context"
	"fmt"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
	"github.com/everynode/everynode/internal/objects/job"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[batchv1.Job, batchv1.JobList](resource.Kind{
		GroupVersion: batchv1.SchemeGroupVersion, Kind: "Job", Plural: "jobs", Singular: "job", Categories: []string{"all"},
	}, resource.Rules[batchv1.Job]{
		Default:          SetDefaults,
		Spec:             func(j *batchv1.Job) any { return &j.Spec },
		Status:           func(j *batchv1.Job) any { return &j.Status },
		PrepareForCreate: func(_ context.Context, j *batchv1.Job) { generateSelector(j) },
		Validate:         func(_ context.Context, j *batchv1.Job) field.ErrorList { return Validate(j) },
		ValidateUpdate:   func(_ context.Context, j, old *batchv1.Job) field.ErrorList { return ValidateUpdate(j, old) },
		ValidateStatusUpdate: func(_ context.Context, j, old *batchv1.Job) field.ErrorList {
			return ValidateStatusUpdate(j, old)
		},
		WarningsOnCreate: func(_ context.Context, j *batchv1.Job) []string {
			return append(warnings.OfName(j.Name, "Pod names and hostnames"), Warnings(&j.Spec, field.NewPath("spec"))...)
		},
		WarningsOnUpdate: func(_ context.Context, j, old *batchv1.Job) []string {
			if j.Generation == old.Generation {
				return nil
			}
			return Warnings(&j.Spec, field.NewPath("spec"))
		},
		// Deleting a Job by its bare URL has always left its pods behind.
		OrphanDependents: true,
		Fields: func(j *batchv1.Job) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
		},
		FieldLabels: []string{"status.successful"},
		Table:       printer,
	})
}

// Warnings tells what may go wrong with a Job, or a template of Jobs, although it
// is valid.
func Warnings(spec *batchv1.JobSpec, path *field.Path) (out []string) {
	if ptr.Deref(spec.CompletionMode, "") == batchv1.IndexedCompletion &&
		ptr.Deref(spec.Completions, 0) > manyCompletions && ptr.Deref(spec.Parallelism, 0) > limitWithMany {
		out = append(
			out,
			path.String()+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
				"Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
		)
	}
	return append(out, warnings.OfTemplate(&spec.Template, path.Child("template"))...)
}

// REST serves Jobs. It warns of the pods that a deletion leaves behind.
type REST struct{ *resource.REST }

// Extend makes the storage warn of what stays when a Job is deleted.
func Extend(s *resource.Storage) { s.Main = &REST{s.Main.(*resource.REST)} }

const leftBehind = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to " +
	"remove them or set propagationPolicy=Orphan to suppress this warning"

func warnOfPods(ctx context.Context, o *metav1.DeleteOptions) {
	if o != nil && o.PropagationPolicy == nil && o.OrphanDependents == nil { //nolint:staticcheck // Old clients send it.
		warning.AddWarning(ctx, "", leftBehind)
	}
}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc,
	o *metav1.DeleteOptions) (runtime.Object, bool, error) {
	warnOfPods(ctx, o)
	return r.REST.Delete(ctx, name, validate, o)
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *REST) DeleteCollection(
	ctx context.Context, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions, list *metainternalversion.ListOptions,
) (runtime.Object, error) {
	warnOfPods(ctx, o)
	return r.REST.DeleteCollection(ctx, validate, o, list)
}

var printer = table.Of(row,
	table.Name,
	table.Column{Name: "Status", Description: "Where the Job stands: Running, Suspended, Complete, Failed and so on."},
	table.Column{Name: "Completions", Description: "Pods that have succeeded, of those wanted."},
	table.Column{Name: "Duration", Description: "Time from the start of the Job to its completion, or until now."},
	table.Age,
	table.Column{Name: "Containers", Wide: true, Description: "Names of the containers in the template."},
	table.Column{Name: "Images", Wide: true, Description: "Images of the containers in the template."},
	table.Column{Name: "Selector", Wide: true, Description: "Selector of the pods that belong to the Job."},
)

func row(j *batchv1.Job, now time.Time) []any {
	names, images := podspec.Summary(j.Spec.Template.Spec.Containers)
	return []any{
		j.Name, state(j), completions(j), took(j, now), table.Since(j.CreationTimestamp, now),
		names, images, metav1.FormatLabelSelector(j.Spec.Selector),
	}
}

func state(j *batchv1.Job) string {
	switch {
	case job.Is(j, batchv1.JobComplete):
		return "Complete"
	case job.Is(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case job.Is(j, batchv1.JobSuspended):
		return "Suspended"
	case job.Is(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case job.Is(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func completions(j *batchv1.Job) string {
	if want := j.Spec.Completions; want != nil {
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *want)
	}
	if parallel := ptr.Deref(j.Spec.Parallelism, 0); parallel > 1 {
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallel)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func took(j *batchv1.Job, now time.Time) string {
	switch {
	case j.Status.StartTime == nil:
		return ""
	case j.Status.CompletionTime != nil:
		now = j.Status.CompletionTime.Time
	}
	return duration.HumanDuration(now.Sub(j.Status.StartTime.Time))
}
