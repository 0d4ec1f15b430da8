package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/testenv"
)

// cronCluster is a control plane with what the tests ask about it, in a namespace.
type cronCluster struct {
	*testenv.Env
	t         *testing.T
	namespace string
}

// hourly is due an hour after it was last; the tests say when that was.
func (c cronCluster) hourly(edits ...func(*batchv1.CronJob)) {
	c.t.Helper()
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "cron", Labels: map[string]string{"test": "yes"}}, Spec: batchv1.CronJobSpec{Schedule: "@every 1h"}}
	cron.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}}
	for _, e := range edits {
		e(cron)
	}
	if _, err := c.Client.BatchV1().CronJobs(c.namespace).Create(c.t.Context(), cron, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// due makes the CronJob due for a time some minutes ago.
func (c cronCluster) due(minutes int) {
	c.t.Helper()
	last := time.Now().Add(-time.Hour - time.Duration(minutes)*time.Minute).UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`, last)
	if _, err := c.Client.BatchV1().CronJobs(c.namespace).Patch(c.t.Context(), "cron", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		c.t.Fatal(err)
	}
}

// eventually waits until the CronJob and its Jobs are as wanted.
func (c cronCluster) eventually(what string, check func(*batchv1.CronJob, []batchv1.Job) bool) (jobs []batchv1.Job) {
	c.t.Helper()
	c.Eventually(what, func(ctx context.Context) error {
		cron, err := c.Client.BatchV1().CronJobs(c.namespace).Get(ctx, "cron", metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, err := c.Client.BatchV1().Jobs(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if jobs = list.Items; !check(cron, jobs) {
			return fmt.Errorf("%d Jobs, the status is %+v", len(jobs), cron.Status)
		}
		return nil
	})
	return jobs
}

func running(n int) func(*batchv1.CronJob, []batchv1.Job) bool {
	return func(cron *batchv1.CronJob, jobs []batchv1.Job) bool {
		return len(jobs) == n && len(cron.Status.Active) == n
	}
}

// told waits for an event of the CronJob.
func (c cronCluster) told(reason string) {
	c.t.Helper()
	c.Eventually("the event "+reason, func(ctx context.Context) error {
		list, err := c.Client.CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=CronJob,reason=" + reason})
		if err == nil && len(list.Items) == 0 {
			err = fmt.Errorf("there is none")
		}
		return err
	})
}

// TestCronJobs has one control plane for all: each test has a namespace.
func TestCronJobs(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	for name, test := range map[string]func(cronCluster){"allow": allow, "forbid": forbid, "replace": replace, "suspended": cronSuspended, "history": history, "operations": cronOperations} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := e.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			test(cronCluster{e.For(t), t, name})
		})
	}
}

func concurrency(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
	return func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = p }
}

func allow(c cronCluster) {
	c.hourly()
	c.due(20)
	c.eventually("the first runs", running(1))
	c.due(5)
	for _, j := range c.eventually("two run", running(2)) {
		if !strings.HasPrefix(j.Name, "cron-") || j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] == "" || metav1.GetControllerOf(&j).Name != "cron" {
			c.t.Errorf("the Job is %+v", j.ObjectMeta)
		}
	}
}

func forbid(c cronCluster) {
	c.hourly(concurrency(batchv1.ForbidConcurrent))
	c.due(20)
	c.eventually("the first runs", running(1))
	c.due(5)
	c.told("JobAlreadyActive")
	c.eventually("it runs alone", running(1))
}

func replace(c cronCluster) {
	c.hourly(concurrency(batchv1.ReplaceConcurrent))
	c.due(20)
	first := c.eventually("the first runs", running(1))[0]
	c.due(5)
	c.eventually("another one runs instead", func(cron *batchv1.CronJob, jobs []batchv1.Job) bool {
		return running(1)(cron, jobs) && jobs[0].UID != first.UID
	})
}

func cronSuspended(c cronCluster) {
	c.hourly(func(c *batchv1.CronJob) { c.Spec.Suspend = ptr.To(true) })
	c.due(20)
	if _, err := c.Client.BatchV1().CronJobs(c.namespace).Patch(c.t.Context(), "cron", types.MergePatchType, []byte(`{"spec":{"schedule":"*/0 * * * *"}}`), metav1.PatchOptions{}); err == nil {
		c.t.Error("a schedule without sense is taken")
	}
	c.eventually("nothing runs", running(0))
	if _, err := c.Client.BatchV1().CronJobs(c.namespace).Patch(c.t.Context(), "cron", types.MergePatchType, []byte(`{"spec":{"suspend":false}}`), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("it runs", running(1))
}

func history(c cronCluster) {
	c.hourly(func(c *batchv1.CronJob) {
		c.Spec.SuccessfulJobsHistoryLimit = ptr.To[int32](1)
		c.Spec.JobTemplate.Spec.Completions, c.Spec.JobTemplate.Spec.Parallelism = new(int32), ptr.To[int32](1) // over at once
	})
	c.due(20)
	first := c.eventually("the first is over", func(cron *batchv1.CronJob, jobs []batchv1.Job) bool {
		return len(jobs) == 1 && len(cron.Status.Active) == 0 && cron.Status.LastSuccessfulTime != nil
	})[0]
	if _, err := c.Client.BatchV1().CronJobs(c.namespace).Patch(c.t.Context(), "cron", types.MergePatchType, []byte(`{"spec":{"schedule":"@every 1m"}}`), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.eventually("only the last is kept", func(_ *batchv1.CronJob, jobs []batchv1.Job) bool {
		return len(jobs) == 1 && jobs[0].UID != first.UID && jobs[0].Status.CompletionTime != nil
	})
}

func cronOperations(c cronCluster) {
	c.hourly(func(c *batchv1.CronJob) { c.Spec.TimeZone = ptr.To("Europe/Rome") })
	crons := c.Client.BatchV1().CronJobs(c.namespace)
	got, err := crons.Patch(c.t.Context(), "cron", types.MergePatchType, []byte(`{"metadata":{"annotations":{"patched":"yes"}},"spec":{"schedule":"0 0 1 1 *"}}`), metav1.PatchOptions{})
	if err != nil || got.Annotations["patched"] != "yes" || got.Generation != 2 {
		c.t.Fatalf("the patched CronJob is %+v, %v", got, err)
	}
	list, err := c.Client.BatchV1().CronJobs("").List(c.t.Context(), metav1.ListOptions{LabelSelector: "test=yes"})
	if err != nil || len(list.Items) == 0 {
		c.t.Errorf("%d in all namespaces, %v", len(list.Items), err)
	}
	if err := crons.DeleteCollection(c.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "test=yes"}); err != nil {
		c.t.Fatal(err)
	}
	if list, err := crons.List(c.t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		c.t.Errorf("%d are left, %v", len(list.Items), err)
	}
}
