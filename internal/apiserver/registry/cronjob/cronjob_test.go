package cronjob

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func nightly(edits ...func(*batchv1.CronJob)) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}, Spec: batchv1.CronJobSpec{Schedule: "0 3 * * *"}}
	c.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "work:v1"}}}
	for _, e := range edits {
		e(c)
	}
	SetDefaults(c)
	return c
}

func TestDefaults(t *testing.T) {
	s := nightly().Spec
	if got := fmt.Sprint(s.ConcurrencyPolicy, *s.Suspend, " ", *s.SuccessfulJobsHistoryLimit, *s.FailedJobsHistoryLimit, s.JobTemplate.Spec.BackoffLimit == nil); got != "Allowfalse 3 1 true" {
		t.Errorf("the defaults are %s", got)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*batchv1.CronJob)
		want string
	}{
		"valid":          {func(c *batchv1.CronJob) { c.Spec.TimeZone = ptr.To("Europe/Rome") }, "[]"},
		"no schedule":    {func(c *batchv1.CronJob) { c.Spec.Schedule = "" }, "[spec.schedule: Required value]"},
		"bad schedule":   {func(c *batchv1.CronJob) { c.Spec.Schedule = "* *" }, `[spec.schedule: Invalid value: "* *": expected exactly 5 fields, found 2: [* *]]`},
		"zone in it":     {func(c *batchv1.CronJob) { c.Spec.Schedule = "TZ=UTC 0 * * * *" }, `[spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead]`},
		"no such zone":   {func(c *batchv1.CronJob) { c.Spec.TimeZone = ptr.To("Mars/Rome") }, `[spec.timeZone: Invalid value: "Mars/Rome": unknown time zone Mars/Rome]`},
		"a path":         {func(c *batchv1.CronJob) { c.Spec.TimeZone = ptr.To("../etc") }, `[spec.timeZone: Invalid value: "../etc": unknown time zone ../etc]`},
		"the local zone": {func(c *batchv1.CronJob) { c.Spec.TimeZone = ptr.To("Local") }, `[spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones]`},
		"no such policy": {func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = "Maybe" }, `[spec.concurrencyPolicy: Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace"]`},
		"numbers": {func(c *batchv1.CronJob) {
			c.Spec.StartingDeadlineSeconds, c.Spec.FailedJobsHistoryLimit = ptr.To[int64](-1), ptr.To[int32](-2)
		},
			"[spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0 spec.failedJobsHistoryLimit: Invalid value: -2: must be greater than or equal to 0]"},
		"a selector":  {func(c *batchv1.CronJob) { c.Spec.JobTemplate.Spec.Selector = &metav1.LabelSelector{} }, "[spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated]"},
		"a long name": {func(c *batchv1.CronJob) { c.Name = strings.Repeat("a", 53) }, `[metadata.name: Invalid value: "` + strings.Repeat("a", 53) + `": must be no more than 52 bytes]`},
		"run always": {func(c *batchv1.CronJob) { c.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = "" },
			`[spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"]`},
	} {
		if got := fmt.Sprint(Validate(nightly(c.edit))); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	old := nightly(func(c *batchv1.CronJob) { c.Name, c.Spec.TimeZone = strings.Repeat("a", 60), ptr.To("Gone/Zone") })
	if errs := ValidateUpdate(old.DeepCopy(), old); len(errs) != 0 {
		t.Errorf("what was stored is refused: %v", errs)
	}
}

func TestTable(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	c := nightly()
	if got := fmt.Sprint(row(c, noon)[1:6]); got != "[0 3 * * * <none> False 0 <none>]" {
		t.Errorf("the row is %s", got)
	}
	c.Spec.TimeZone, c.Spec.Suspend, c.Status.Active = ptr.To("UTC"), ptr.To(true), make([]corev1.ObjectReference, 2)
	c.Status.LastScheduleTime = &metav1.Time{Time: noon.Add(-time.Hour)}
	if got := fmt.Sprint(row(c, noon)[1:6]); got != "[0 3 * * * UTC True 2 60m]" {
		t.Errorf("the row is %s", got)
	}
}
