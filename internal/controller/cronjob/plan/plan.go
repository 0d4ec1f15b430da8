// Package plan decides what a CronJob needs: a Job to make, Jobs to delete, and what
// its status says. It reads nothing but its arguments.
//
// The name of a Job says for which time it is. So it is made once, also by a process
// that does not know that another one made it.
package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/cronschedule"
	"github.com/everynode/everynode/internal/objects/job"
)

// manyMissed is from how many missed times on users are told that something is wrong.
const manyMissed = 100

// Input is what a decision is made from. Nothing in it is changed.
type Input struct {
	CronJob *batchv1.CronJob
	// Jobs are all that the CronJob controls. One that its status calls active is
	// there if it exists, whatever a cache knows.
	Jobs []*batchv1.Job
	Now  time.Time
}

// Event is something to tell users.
type Event struct{ Type, Reason, Message string }

// Plan is what to do, in this order.
type Plan struct {
	// Status is what the CronJob's status shall say. Changed says whether that is news.
	Status  batchv1.CronJobStatus
	Changed bool
	Events  []Event
	// History are Jobs that are over and more than are to be kept.
	History []*batchv1.Job
	// Replace are Jobs to delete because the next one begins.
	Replace []*batchv1.Job
	// Create is a Job to make, for the time Due. Started is the status with it.
	Create *batchv1.Job
	Due    time.Time
	// Next is when to look again; zero for never.
	Next time.Time
	// Reason says why nothing is made.
	Reason string
}

// Decide compares what there is with what there should be.
func Decide(in Input) Plan {
	p := Plan{Status: *in.CronJob.Status.DeepCopy()}
	p.settle(in)
	p.History = append(oldest(in.Jobs, batchv1.JobComplete, in.CronJob.Spec.SuccessfulJobsHistoryLimit), oldest(
		in.Jobs, batchv1.JobFailed, in.CronJob.Spec.FailedJobsHistoryLimit,
	)...)
	p.schedule(in)
	p.Changed = !apiequality.Semantic.DeepEqual(p.Status, in.CronJob.Status)
	return p
}

func (p *Plan) tell(kind, reason, format string, args ...any) {
	p.Events = append(p.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// settle brings the status up to date with the Jobs that there are.
func (p *Plan) settle(in Input) {
	p.settleUnlisted(in, p.settleListed(in))
}

// settleListed keeps those of the status' Jobs that have not ended, and returns the
// UIDs of all of them.
func (p *Plan) settleListed(in Input) (listed map[string]bool) {
	known := map[string]*batchv1.Job{}
	for _, j := range in.Jobs {
		known[string(j.UID)] = j
		if end := j.Status.CompletionTime; job.Is(j, batchv1.JobComplete) && end != nil &&
			(p.Status.LastSuccessfulTime == nil || p.Status.LastSuccessfulTime.Before(end)) {
			p.Status.LastSuccessfulTime = end.DeepCopy()
		}
	}
	active := p.Status.Active
	p.Status.Active = nil
	listed = map[string]bool{}
	for _, ref := range active {
		j := known[string(ref.UID)]
		listed[string(ref.UID)] = true
		switch {
		case j == nil:
			p.tell(corev1.EventTypeNormal, "MissingJob", "Active job went missing: %v", ref.Name)
		case job.Finished(j) != nil:
			p.tell(
				corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", j.Name, job.Finished(j).Type,
			)
		default:
			p.Status.Active = append(p.Status.Active, ref)
		}
	}
	return listed
}

// settleUnlisted takes the CronJob's own Jobs up that the status does not have.
func (p *Plan) settleUnlisted(in Input, listed map[string]bool) {
	for _, j := range in.Jobs {
		if listed[string(j.UID)] {
			continue
		}
		due, ours := dueOf(in.CronJob, j)
		switch {
		case ours:
			// Made by a process that died before it could write so.
			if p.Status.LastScheduleTime == nil || p.Status.LastScheduleTime.Time.Before(due) {
				p.Status.LastScheduleTime = ptr.To(metav1.NewTime(due))
			}
			if job.Finished(j) == nil && j.DeletionTimestamp == nil {
				p.Status.Active = append(p.Status.Active, Reference(j))
			}
		case job.Finished(j) == nil:
			p.tell(
				corev1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", j.Name,
			)
		}
	}
}

// dueOf is the time for which a Job was made, if this controller made it.
func dueOf(c *batchv1.CronJob, j *batchv1.Job) (time.Time, bool) {
	due, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	return due, err == nil && j.Name == nameFor(c, due)
}

func nameFor(c *batchv1.CronJob, due time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, due.Unix()/60)
}

// Reference is how a status speaks of a Job.
func Reference(j *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID,
		ResourceVersion: j.ResourceVersion,
	}
}

// oldest lists the Jobs that ended so, beyond the newest ones that are kept.
func oldest(jobs []*batchv1.Job, end batchv1.JobConditionType, keep *int32) []*batchv1.Job {
	if keep == nil {
		return nil
	}
	var ended []*batchv1.Job
	for _, j := range jobs {
		if job.Is(j, end) && j.DeletionTimestamp == nil {
			ended = append(ended, j)
		}
	}
	slices.SortFunc(ended, func(a, b *batchv1.Job) int {
		return cmp.Or(started(a).Compare(started(b)), cmp.Compare(a.Name, b.Name))
	})
	return ended[:max(0, len(ended)-int(*keep))]
}

func started(j *batchv1.Job) time.Time {
	if j.Status.StartTime == nil {
		return j.CreationTimestamp.Time
	}
	return j.Status.StartTime.Time
}

// schedule decides whether a Job is due.
func (p *Plan) schedule(in Input) {
	c := in.CronJob
	if c.DeletionTimestamp != nil || ptr.Deref(c.Spec.Suspend, false) {
		p.Reason = "it is suspended, or being deleted"
		return
	}
	s, err := cronschedule.Parse(c.Spec.Schedule, ptr.Deref(c.Spec.TimeZone, ""))
	if err != nil {
		p.Reason = err.Error()
		p.tell(corev1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %v", c.Spec.Schedule, err)
		return
	}
	since := c.CreationTimestamp.Time
	if p.Status.LastScheduleTime != nil {
		since = p.Status.LastScheduleTime.Time
	}
	due := s.Last(since, in.Now)
	p.Next = s.Next(in.Now)
	if _, every := s.Every(); every { // counted from the last one
		p.Next = s.Next(latest(since, due))
	}
	if due.IsZero() {
		p.Reason = "it is not due"
		return
	}
	if limit := c.Spec.StartingDeadlineSeconds; limit != nil {
		if due.Add(time.Duration(*limit) * time.Second).Before(in.Now) {
			p.Reason = "it is too late"
			p.tell(
				corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: %s",
				due.UTC().Format(time.RFC1123Z),
			)
			return
		}
		since = latest(since, in.Now.Add(-time.Duration(*limit)*time.Second))
	}
	if s.Missed(since, in.Now, manyMissed+1) > manyMissed {
		p.tell(
			corev1.EventTypeWarning, "TooManyMissedTimes",
			"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
		)
	}
	p.start(in, due.In(s.Zone()))
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// start decides what becomes of the Jobs that run when the next one is due.
func (p *Plan) start(in Input, due time.Time) {
	if len(p.Status.Active) > 0 {
		switch in.CronJob.Spec.ConcurrencyPolicy {
		case batchv1.ForbidConcurrent:
			p.Reason = "the last one still runs"
			p.tell(
				corev1.EventTypeNormal, "JobAlreadyActive",
				"Not starting job because prior execution is running and concurrency policy is Forbid",
			)
			return
		case batchv1.ReplaceConcurrent:
			for _, j := range in.Jobs {
				if slices.ContainsFunc(p.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == j.UID }) {
					p.Replace = append(p.Replace, j)
				}
			}
			p.Status.Active = nil
		}
	}
	p.Create, p.Due = newJob(in.CronJob, due), due
}

func newJob(c *batchv1.CronJob, due time.Time) *batchv1.Job {
	t := c.Spec.JobTemplate.DeepCopy()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.Namespace, Name: nameFor(c, due), Labels: t.Labels, Annotations: maps.Clone(t.Annotations),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
	}, Spec: t.Spec}
	if j.Annotations == nil {
		j.Annotations = map[string]string{}
	}
	j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = due.Format(time.RFC3339)
	return j
}

// Started is the status once the Job that was due is there.
func (p Plan) Started(j *batchv1.Job) batchv1.CronJobStatus {
	out := *p.Status.DeepCopy()
	if job.Finished(j) == nil {
		out.Active = append(out.Active, Reference(j))
	}
	out.LastScheduleTime = ptr.To(metav1.NewTime(p.Due))
	return out
}
