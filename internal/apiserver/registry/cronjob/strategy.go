// Package cronjob describes the kind CronJob of batch/v1.
package cronjob

import (
	"context"
	"regexp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/apiserver/registry/job"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
	"github.com/everynode/everynode/internal/objects/cronschedule"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[batchv1.CronJob, batchv1.CronJobList](resource.Kind{
		GroupVersion: batchv1.SchemeGroupVersion, Kind: "CronJob",
		Plural: "cronjobs", Singular: "cronjob", ShortNames: []string{"cj"}, Categories: []string{"all"},
	}, resource.Rules[batchv1.CronJob]{
		Default:        SetDefaults,
		Spec:           func(c *batchv1.CronJob) any { return &c.Spec },
		Status:         func(c *batchv1.CronJob) any { return &c.Status },
		Validate:       func(_ context.Context, c *batchv1.CronJob) field.ErrorList { return Validate(c) },
		ValidateUpdate: func(_ context.Context, c, old *batchv1.CronJob) field.ErrorList { return ValidateUpdate(c, old) },
		WarningsOnCreate: func(_ context.Context, c *batchv1.CronJob) []string {
			return append(warnings.OfName(c.Name, "Pod names and hostnames"), warningsOf(c)...)
		},
		WarningsOnUpdate: func(_ context.Context, c, old *batchv1.CronJob) []string {
			if c.Generation == old.Generation {
				return nil
			}
			return warningsOf(c)
		},
		Table: printer,
	})
}

func warningsOf(c *batchv1.CronJob) []string {
	return job.Warnings(&c.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec"))
}

const (
	successesKept = 3
	failuresKept  = 1
	// longestName leaves room for the time in the names of Jobs.
	longestName = 52
)

// SetDefaults fills in what a CronJob leaves out.
func SetDefaults(c *batchv1.CronJob) {
	if c.Spec.ConcurrencyPolicy == "" {
		c.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	if c.Spec.Suspend == nil {
		c.Spec.Suspend = new(bool)
	}
	if c.Spec.SuccessfulJobsHistoryLimit == nil {
		c.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](successesKept)
	}
	if c.Spec.FailedJobsHistoryLimit == nil {
		c.Spec.FailedJobsHistoryLimit = ptr.To[int32](failuresKept)
	}
	job.SetTemplateDefaults(&c.Spec.JobTemplate.Spec)
}

// Validate checks a new CronJob, metadata aside.
func Validate(c *batchv1.CronJob) field.ErrorList {
	errs := validateSpec(&c.Spec, nil)
	if len(c.Name) > longestName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, content.MaxLenError(longestName)))
	}
	return errs
}

// ValidateUpdate checks a changed CronJob, metadata aside.
func ValidateUpdate(c, old *batchv1.CronJob) field.ErrorList { return validateSpec(&c.Spec, &old.Spec) }

func validateSpec(s, old *batchv1.CronJobSpec) (errs field.ErrorList) {
	path := field.NewPath("spec")
	at := path.Child("schedule")
	if s.Schedule == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		if _, err := cronschedule.Parse(s.Schedule, ""); err != nil {
			errs = append(errs, field.Invalid(at, s.Schedule, err.Error()))
		}
		if strings.Contains(s.Schedule, "TZ") {
			errs = append(errs, field.Invalid(
				at, s.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
			))
		}
	}
	if s.StartingDeadlineSeconds != nil {
		errs = append(errs, amount.NonNegative(path.Child("startingDeadlineSeconds"), *s.StartingDeadlineSeconds)...)
	}
	if s.TimeZone != nil && (old == nil || !ptr.Equal(s.TimeZone, old.TimeZone)) {
		errs = append(errs, validateZone(*s.TimeZone, path.Child("timeZone"))...)
	}
	at = path.Child("concurrencyPolicy")
	switch s.ConcurrencyPolicy {
	case batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent:
	case "":
		errs = append(errs, field.Required(at, ""))
	default:
		errs = append(errs, field.NotSupported(at, s.ConcurrencyPolicy, []batchv1.ConcurrencyPolicy{
			batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent,
		}))
	}
	var before *batchv1.JobTemplateSpec
	if old != nil {
		before = &old.JobTemplate
	}
	errs = append(errs, job.ValidateTemplate(&s.JobTemplate, before, path.Child("jobTemplate"))...)
	errs = append(errs, amount.NonNegative(
		path.Child("successfulJobsHistoryLimit"), int64(ptr.Deref(s.SuccessfulJobsHistoryLimit, 0)),
	)...)
	return append(errs, amount.NonNegative(
		path.Child("failedJobsHistoryLimit"), int64(ptr.Deref(s.FailedJobsHistoryLimit, 0)),
	)...)
}

// zonePart is a part of the name of a time zone. Digits are for old names.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+-]{1,14}$`)

func validateZone(zone string, path *field.Path) (errs field.ErrorList) {
	if zone == "" {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(path, zone, "unknown time zone "+zone)}
		}
	}
	if strings.EqualFold(zone, "Local") {
		errs = append(errs, field.Invalid(
			path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
		))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(path, zone, err.Error()))
	}
	return errs
}

var printer = table.Of(row,
	table.Name,
	table.Column{Name: "Schedule", Description: "When a Job is made."},
	table.Column{Name: "Timezone", Description: "Time zone of the schedule."},
	table.Column{Name: "Suspend", Type: "boolean", Description: "Whether no Jobs are made for now."},
	table.Column{Name: "Active", Type: "integer", Description: "Jobs that run."},
	table.Column{Name: "Last Schedule", Description: "Time since a Job was last made."},
	table.Age,
	table.Column{Name: "Containers", Wide: true, Description: "Names of the containers in the template."},
	table.Column{Name: "Images", Wide: true, Description: "Images of the containers in the template."},
	table.Column{Name: "Selector", Wide: true, Description: "Selector of the pods of the Jobs."},
)

func row(c *batchv1.CronJob, now time.Time) []any {
	names, images := podspec.Summary(c.Spec.JobTemplate.Spec.Template.Spec.Containers)
	last, suspended := "<none>", "False"
	if t := c.Status.LastScheduleTime; t != nil {
		last = table.Since(*t, now)
	}
	if ptr.Deref(c.Spec.Suspend, false) {
		suspended = "True"
	}
	return []any{
		c.Name, c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, "<none>"), suspended, int64(len(c.Status.Active)), last,
		table.Since(c.CreationTimestamp, now), names, images, metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector),
	}
}
