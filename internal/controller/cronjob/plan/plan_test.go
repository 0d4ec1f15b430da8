package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func at(minutes float64) metav1.Time {
	return metav1.NewTime(noon.Add(time.Duration(minutes * float64(time.Minute))))
}

type edit = func(*batchv1.CronJob)

// every10 is due every ten minutes; it was made long ago and due last at noon - 10m.
func every10(edits ...edit) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: "c", CreationTimestamp: at(-10000)}}
	c.Spec.Schedule, c.Spec.TimeZone, c.Spec.ConcurrencyPolicy = "*/10 * * * *", ptr.To("UTC"), batchv1.AllowConcurrent
	c.Spec.JobTemplate.Labels = map[string]string{"app": "c"}
	c.Status.LastScheduleTime = ptr.To(at(-10))
	for _, e := range edits {
		e(c)
	}
	return c
}

func aJob(name string, words ...string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), Annotations: map[string]string{}}}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "for": // made by this controller
			due, _ := time.Parse("15:04", value)
			full := time.Date(2030, 1, 1, due.Hour(), due.Minute(), 0, 0, time.UTC)
			j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = full.Format(time.RFC3339)
			j.Name = fmt.Sprintf("c-%d", full.Unix()/60)
		case "complete":
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			j.Status.CompletionTime = ptr.To(at(-3))
		case "failed":
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
		case "started":
			d, _ := time.ParseDuration(value)
			j.Status.StartTime = ptr.To(metav1.NewTime(noon.Add(-d)))
		case "going":
			j.DeletionTimestamp = ptr.To(at(0))
		}
	}
	return j
}

func active(names ...string) edit {
	return func(c *batchv1.CronJob) {
		for _, n := range names {
			c.Status.Active = append(c.Status.Active, corev1.ObjectReference{Name: n, UID: types.UID(n)})
		}
	}
}

func concurrency(p batchv1.ConcurrencyPolicy) edit {
	return func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = p }
}

// show writes a plan in few words.
func show(p Plan) string {
	var out []string
	add := func(what string, jobs []*batchv1.Job) {
		for _, j := range jobs {
			out = append(out, what+" "+string(j.UID))
		}
	}
	add("forget", p.History)
	add("replace", p.Replace)
	if p.Create != nil {
		out = append(out, "create "+p.Create.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	}
	for _, ref := range p.Status.Active {
		out = append(out, "active "+string(ref.UID))
	}
	for _, e := range p.Events {
		out = append(out, e.Reason)
	}
	return strings.Join(out, ", ")
}

func TestDecide(t *testing.T) {
	limits := func(n int32) edit {
		return func(c *batchv1.CronJob) {
			c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = &n, &n
		}
	}
	done := func(c *batchv1.CronJob) { c.Status.LastScheduleTime = ptr.To(at(0)) }
	for name, c := range map[string]struct {
		cron *batchv1.CronJob
		jobs []*batchv1.Job
		want string
	}{
		"due":             {every10(), nil, "create 2030-01-01T12:00:00Z"},
		"done":            {every10(done), nil, ""},
		"suspended":       {every10(func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(true) }), nil, ""},
		"being deleted":   {every10(func(c *batchv1.CronJob) { c.DeletionTimestamp = ptr.To(at(0)) }), nil, ""},
		"new":             {every10(func(c *batchv1.CronJob) { c.Status.LastScheduleTime, c.CreationTimestamp = nil, at(0) }), nil, ""},
		"in another zone": {every10(func(c *batchv1.CronJob) { c.Spec.Schedule, c.Spec.TimeZone = "0 13 * * *", ptr.To("Europe/Rome") }), nil, "create 2030-01-01T13:00:00+01:00"},
		"many missed":     {every10(func(c *batchv1.CronJob) { c.Status.LastScheduleTime = ptr.To(at(-2000)) }), nil, "create 2030-01-01T12:00:00Z, TooManyMissedTimes"},
		"many, with a limit": {every10(func(c *batchv1.CronJob) {
			c.Status.LastScheduleTime, c.Spec.StartingDeadlineSeconds = ptr.To(at(-2000)), ptr.To[int64](600)
		}), nil, "create 2030-01-01T12:00:00Z"},
		"too late": {every10(func(c *batchv1.CronJob) {
			c.Spec.Schedule, c.Spec.StartingDeadlineSeconds = "55 11 * * *", ptr.To[int64](60)
		}), nil, "MissSchedule"},
		"unreadable":           {every10(func(c *batchv1.CronJob) { c.Spec.Schedule = "x" }), nil, "UnparseableSchedule"},
		"beside another":       {every10(active("a")), []*batchv1.Job{aJob("a")}, "create 2030-01-01T12:00:00Z, active a"},
		"forbidden":            {every10(active("a"), concurrency(batchv1.ForbidConcurrent)), []*batchv1.Job{aJob("a")}, "active a, JobAlreadyActive"},
		"no longer forbidden":  {every10(active("a"), concurrency(batchv1.ForbidConcurrent)), []*batchv1.Job{aJob("a", "failed")}, "create 2030-01-01T12:00:00Z, SawCompletedJob"},
		"in place of another":  {every10(active("a"), concurrency(batchv1.ReplaceConcurrent)), []*batchv1.Job{aJob("a")}, "replace a, create 2030-01-01T12:00:00Z"},
		"missing":              {every10(done, active("a")), nil, "MissingJob"},
		"somebody else's":      {every10(done), []*batchv1.Job{aJob("a")}, "UnexpectedJob"},
		"made before a crash":  {every10(concurrency(batchv1.ForbidConcurrent)), []*batchv1.Job{aJob("a", "for=12:00")}, "active a"},
		"ended before a crash": {every10(), []*batchv1.Job{aJob("a", "for=12:00", "complete")}, ""},
		"replaced, and going":  {every10(done), []*batchv1.Job{aJob("a", "for=11:50", "going")}, ""},
		"history": {every10(done, limits(1)), []*batchv1.Job{aJob("a", "complete", "started=1h"), aJob("b", "complete", "started=2h"), aJob("c", "failed", "started=3h"), aJob("d", "failed", "started=4h"), aJob("e", "failed", "started=5h", "going")},
			"forget b, forget d"},
		"no history": {every10(done, limits(0)), []*batchv1.Job{aJob("a", "complete")}, "forget a"},
	} {
		if got := show(Decide(Input{c.cron, c.jobs, noon.Add(2 * time.Second)})); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestStatusAndJob(t *testing.T) {
	c := every10()
	p := Decide(Input{c, []*batchv1.Job{aJob("a", "complete")}, noon.Add(2 * time.Second)})
	if !p.Changed || !p.Status.LastSuccessfulTime.Time.Equal(at(-3).Time) || !p.Next.Equal(noon.Add(10*time.Minute)) {
		t.Errorf("changed %v, last success %v, next %v", p.Changed, p.Status.LastSuccessfulTime, p.Next)
	}
	if j := p.Create; j.Name != "c-31558320" || j.Labels["app"] != "c" || !metav1.IsControlledBy(j, c) {
		t.Errorf("the Job is %+v", j.ObjectMeta)
	}
	made := aJob("new")
	if s := p.Started(made); len(s.Active) != 1 || s.Active[0].UID != "new" || !s.LastScheduleTime.Time.Equal(noon) {
		t.Errorf("the status is %+v", s)
	}
	c.Status = p.Started(made)
	if again := Decide(Input{c, []*batchv1.Job{aJob("a", "complete"), made}, noon.Add(3 * time.Second)}); again.Changed || again.Create != nil {
		t.Errorf("the same again: %s, changed %v", show(again), again.Changed)
	}
}
