package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	jobfacts "github.com/everynode/everynode/internal/objects/job"
	"github.com/everynode/everynode/internal/testenv"
)

// jobCluster is a control plane with what the tests ask about it, in a namespace. Nothing
// runs the pods: the tests say how they end.
type jobCluster struct {
	*testenv.Env
	t         *testing.T
	namespace string
}

func work(edits ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}},
	}}}
	for _, edit := range edits {
		edit(j)
	}
	return j
}

func indexed(completions, parallelism int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.CompletionMode, j.Spec.Completions, j.Spec.Parallelism = ptr.To(batchv1.IndexedCompletion), &completions, &parallelism
	}
}

func (c jobCluster) create(j *batchv1.Job) *batchv1.Job {
	c.t.Helper()
	out, err := c.Client.BatchV1().Jobs(c.namespace).Create(c.t.Context(), j, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c jobCluster) patch(format string, args ...any) {
	c.t.Helper()
	patch := fmt.Sprintf(format, args...)
	if _, err := c.Client.BatchV1().Jobs(c.namespace).Patch(c.t.Context(), "work", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatalf("patch with %s: %v", patch, err)
	}
}

// job waits until the Job is as wanted.
func (c jobCluster) job(what string, check func(*batchv1.Job) error) (j *batchv1.Job) {
	c.t.Helper()
	c.Eventually(what, func(ctx context.Context) (err error) {
		if j, err = c.Client.BatchV1().Jobs(c.namespace).Get(ctx, "work", metav1.GetOptions{}); err != nil {
			return err
		}
		if err = check(j); err != nil {
			return fmt.Errorf("%w; the status is %+v", err, j.Status)
		}
		return nil
	})
	return j
}

// ended waits until the Job is over and compares how: the types and reasons of its
// conditions, and its numbers.
func (c jobCluster) ended(want string) *batchv1.Job {
	c.t.Helper()
	j := c.job("the Job ends", func(j *batchv1.Job) error {
		if jobfacts.Finished(j) == nil {
			return fmt.Errorf("the Job is not over")
		}
		return nil
	})
	var got []string
	for _, cond := range j.Status.Conditions {
		got = append(got, fmt.Sprintf("%s=%s/%s", cond.Type, cond.Status, cond.Reason))
	}
	got = append(got, fmt.Sprintf("%d succeeded %d failed", j.Status.Succeeded, j.Status.Failed))
	if text := strings.Join(got, " "); text != want {
		c.t.Errorf("the Job ended with %s\nwant %s\nmessage: %s", text, want, jobfacts.Finished(j).Message)
	}
	return j
}

// pods lists the Job's pods that run, by index if they have one.
func (c jobCluster) pods(ctx context.Context) (out []*corev1.Pod) {
	list, err := c.Client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=work"})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

// active waits until that many pods are active.
func (c jobCluster) active(n int) (out []*corev1.Pod) {
	c.t.Helper()
	c.Eventually(fmt.Sprintf("%d pods are active", n), func(ctx context.Context) error {
		if out = c.pods(ctx); len(out) != n {
			return fmt.Errorf("%d are", len(out))
		}
		return nil
	})
	return out
}

// end lets a pod end, with an exit code and conditions.
func (c jobCluster) end(p *corev1.Pod, code int32, conditions ...corev1.PodCondition) {
	c.t.Helper()
	p = p.DeepCopy()
	now := metav1.Now()
	p.ResourceVersion = "" // the scheduler may write too
	p.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		p.Status.Phase = corev1.PodFailed
	}
	p.Status.Conditions = append(p.Status.Conditions, conditions...)
	// It ended a while ago, so that the next one need not wait.
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, FinishedAt: metav1.NewTime(now.Add(-time.Hour)),
	}}}}
	if _, err := c.Client.CoreV1().Pods(c.namespace).UpdateStatus(c.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		c.t.Errorf("end pod %s: %v", p.Name, err)
	}
}

// bind gives a pod a node of its own, on which nothing runs.
func (c jobCluster) bind(p *corev1.Pod) {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Spec: corev1.NodeSpec{Unschedulable: true}}
	if _, err := c.Client.CoreV1().Nodes().Create(c.t.Context(), node, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	if err := c.Client.CoreV1().Pods(c.namespace).Bind(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// run ends each pod that comes up as code says, until the Job is over.
func (c jobCluster) run(code func(p *corev1.Pod) (int32, []corev1.PodCondition)) {
	c.t.Helper()
	c.Eventually("the Job ends", func(ctx context.Context) error {
		j, err := c.Client.BatchV1().Jobs(c.namespace).Get(ctx, "work", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if jobfacts.Finished(j) != nil {
			return nil
		}
		for _, p := range c.pods(ctx) {
			n, conditions := code(p)
			if n >= 0 {
				c.end(p, n, conditions...)
			}
		}
		return fmt.Errorf("the status is %+v", j.Status)
	})
}

func index(p *corev1.Pod) string { return p.Annotations[batchv1.JobCompletionIndexAnnotation] }

// TestJobs has one control plane for all: each test has a namespace.
func TestJobs(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	for name, test := range map[string]func(jobCluster){
		"completions": completions, "work-queue": workQueue, "indexes": indexes, "suspended": jobSuspended, "backoff": backoff, "deadline": deadline,
		"exit-code": exitCode, "ignored": ignored, "index-limit": indexLimit, "fail-index": failIndex, "most-failed": mostFailed,
		"success-all": successAll, "success-some": successSome, "success-count": successCount,
		"adoption": adoption, "deletion": deletion, "ttl": ttl, "managed": managed, "status": status, "elastic": elastic, "replacement": replacement,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := e.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			e.Eventually("the account of pods is there", func(ctx context.Context) error {
				_, err := e.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
				return err
			})
			test(jobCluster{e.For(t), t, name})
		})
	}
}

func succeed(*corev1.Pod) (int32, []corev1.PodCondition) { return 0, nil }

const complete = "SuccessCriteriaMet=True/CompletionsReached Complete=True/CompletionsReached "

func completions(c jobCluster) {
	j := c.create(work(func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](5), ptr.To[int32](2) }))
	if got := fmt.Sprint(j.Spec.Selector.MatchLabels); got != fmt.Sprintf("map[batch.kubernetes.io/controller-uid:%s]", j.UID) {
		c.t.Errorf("the selector is %s", got)
	}
	for _, p := range c.active(2) {
		if len(p.Finalizers) != 1 || p.Labels["job-name"] != "work" || p.Labels["controller-uid"] != string(j.UID) || !metav1.IsControlledBy(p, j) || !strings.HasPrefix(p.Name, "work-") {
			c.t.Errorf("the pod is %+v", p.ObjectMeta)
		}
	}
	c.job("two are active", func(j *batchv1.Job) error {
		if j.Status.Active != 2 || *j.Status.Ready != 0 || j.Status.StartTime == nil {
			return fmt.Errorf("not so")
		}
		return nil
	})
	c.run(succeed)
	j = c.ended(complete + "5 succeeded 0 failed")
	if j.Status.CompletionTime == nil || j.Status.Active != 0 {
		c.t.Errorf("the status is %+v", j.Status)
	}
	list, err := c.Client.CoreV1().Pods(c.namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 5 {
		c.t.Fatalf("%d pods, %v", len(list.Items), err)
	}
	for _, p := range list.Items {
		if len(p.Finalizers) > 0 {
			c.t.Errorf("pod %s has the finalizers %v", p.Name, p.Finalizers)
		}
	}
}

func workQueue(c jobCluster) {
	c.create(work(func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](3) }))
	pods := c.active(3)
	c.end(pods[0], 0)
	c.job("one has succeeded", func(j *batchv1.Job) error {
		if j.Status.Succeeded != 1 || j.Status.Active != 2 {
			return fmt.Errorf("not so")
		}
		return nil
	})
	c.end(pods[1], 0)
	c.end(pods[2], 0)
	c.ended(complete + "3 succeeded 0 failed")
}

func indexes(c jobCluster) {
	c.create(work(indexed(4, 2)))
	seen := map[string]bool{}
	c.run(func(p *corev1.Pod) (int32, []corev1.PodCondition) {
		i := index(p)
		env := p.Spec.Containers[0].Env
		if p.Spec.Hostname != "work-"+i || !strings.HasPrefix(p.Name, "work-"+i+"-") || p.Labels[batchv1.JobCompletionIndexAnnotation] != i ||
			len(env) != 1 || env[0].Name != "JOB_COMPLETION_INDEX" || env[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" {
			c.t.Errorf("pod %s of index %s has host name %s, labels %v, environment %v", p.Name, i, p.Spec.Hostname, p.Labels, env)
		}
		seen[i] = true
		return 0, nil
	})
	if j := c.ended(complete + "4 succeeded 0 failed"); j.Status.CompletedIndexes != "0-3" || len(seen) != 4 {
		c.t.Errorf("completed are %s, seen %v", j.Status.CompletedIndexes, seen)
	}
}

func jobSuspended(c jobCluster) {
	c.create(work(func(j *batchv1.Job) { j.Spec.Suspend, j.Spec.ActiveDeadlineSeconds = ptr.To(true), ptr.To[int64](3600) }))
	is := func(status corev1.ConditionStatus) func(*batchv1.Job) error {
		return func(j *batchv1.Job) error {
			if cond := jobfacts.Condition(j, batchv1.JobSuspended); cond == nil || cond.Status != status {
				return fmt.Errorf("suspended is %v", cond)
			}
			return nil
		}
	}
	if j := c.job("it is suspended", is(corev1.ConditionTrue)); j.Status.StartTime != nil {
		c.t.Errorf("a Job that never ran started at %v", j.Status.StartTime)
	}
	c.active(0)
	c.patch(`{"spec":{"template":{"spec":{"nodeSelector":{"disk":"fast"}}}}}`)
	c.patch(`{"spec":{"suspend":false}}`)
	if p := c.active(1)[0]; p.Spec.NodeSelector["disk"] != "fast" {
		c.t.Errorf("the pod's node selector is %v", p.Spec.NodeSelector)
	}
	if j := c.job("it runs", is(corev1.ConditionFalse)); j.Status.StartTime == nil {
		c.t.Error("the Job has not started")
	}
	_, err := c.Client.BatchV1().Jobs(c.namespace).Patch(c.t.Context(), "work", types.MergePatchType, []byte(`{"spec":{"template":{"spec":{"nodeSelector":{"disk":"slow"}}}}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		c.t.Errorf("the template of a Job that runs is changed: %v", err)
	}
	c.patch(`{"spec":{"suspend":true}}`)
	j := c.job("it is suspended again", is(corev1.ConditionTrue))
	c.active(0)
	if j.Status.Failed != 0 {
		c.t.Errorf("%d pods failed because the Job was suspended", j.Status.Failed)
	}
	c.patch(`{"spec":{"suspend":false}}`)
	c.run(succeed)
	c.ended("Suspended=False/JobResumed " + complete + "1 succeeded 0 failed")
}

func backoff(c jobCluster) {
	c.create(work(func(j *batchv1.Job) { j.Spec.BackoffLimit = ptr.To[int32](2) }))
	c.run(func(*corev1.Pod) (int32, []corev1.PodCondition) { return 1, nil })
	c.ended("FailureTarget=True/BackoffLimitExceeded Failed=True/BackoffLimitExceeded 0 succeeded 3 failed")
}

func deadline(c jobCluster) {
	c.create(work(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = ptr.To[int64](1) }))
	c.ended("FailureTarget=True/DeadlineExceeded Failed=True/DeadlineExceeded 0 succeeded 1 failed")
	c.active(0)
}

func policy(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
}

func onCode(action batchv1.PodFailurePolicyAction, code int32) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{code}}}
}

func exitCode(c jobCluster) {
	c.create(work(policy(onCode(batchv1.PodFailurePolicyActionFailJob, 42)), func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = ptr.To[int32](3), ptr.To[int32](2) }))
	pods := c.active(2)
	c.end(pods[0], 42)
	j := c.ended("FailureTarget=True/PodFailurePolicy Failed=True/PodFailurePolicy 0 succeeded 2 failed")
	want := fmt.Sprintf("Container main for pod exit-code/%s failed with exit code 42 matching FailJob rule at index 0", pods[0].Name)
	if got := jobfacts.Finished(j).Message; got != want {
		c.t.Errorf("the message is %s, want %s", got, want)
	}
}

func ignored(c jobCluster) {
	disrupted := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}
	c.create(work(policy(batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget}}}), func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32) }))
	first := true
	c.run(func(*corev1.Pod) (int32, []corev1.PodCondition) {
		if first {
			first = false
			return 137, []corev1.PodCondition{disrupted}
		}
		return 0, nil
	})
	c.ended(complete + "1 succeeded 0 failed")
}

func perIndex(limit int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = &limit }
}

func indexLimit(c jobCluster) {
	c.create(work(indexed(4, 2), perIndex(1)))
	c.run(func(p *corev1.Pod) (int32, []corev1.PodCondition) {
		if i := index(p); i == "1" || i == "2" && p.Annotations[batchv1.JobIndexFailureCountAnnotation] == "0" {
			return 1, nil
		}
		return 0, nil
	})
	j := c.ended("FailureTarget=True/FailedIndexes Failed=True/FailedIndexes 3 succeeded 3 failed")
	if j.Status.CompletedIndexes != "0,2,3" || *j.Status.FailedIndexes != "1" {
		c.t.Errorf("completed are %s, failed %s", j.Status.CompletedIndexes, *j.Status.FailedIndexes)
	}
}

func failIndex(c jobCluster) {
	c.create(work(indexed(3, 3), perIndex(5), policy(onCode(batchv1.PodFailurePolicyActionFailIndex, 7))))
	c.run(func(p *corev1.Pod) (int32, []corev1.PodCondition) {
		if index(p) == "0" {
			return 7, nil
		}
		return 0, nil
	})
	if j := c.ended("FailureTarget=True/FailedIndexes Failed=True/FailedIndexes 2 succeeded 1 failed"); *j.Status.FailedIndexes != "0" {
		c.t.Errorf("failed are %s", *j.Status.FailedIndexes)
	}
}

func mostFailed(c jobCluster) {
	c.create(work(indexed(10, 2), perIndex(0), func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = ptr.To[int32](1) }))
	c.run(func(*corev1.Pod) (int32, []corev1.PodCondition) { return 1, nil })
	j := c.job("it ended", func(*batchv1.Job) error { return nil })
	if end := jobfacts.Finished(j); end.Reason != batchv1.JobReasonMaxFailedIndexesExceeded || j.Status.Failed > 4 {
		c.t.Errorf("the Job ended as %s with %d failed pods", end.Reason, j.Status.Failed)
	}
}

func success(rule batchv1.SuccessPolicyRule) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{rule}}
	}
}

const metPolicy = "SuccessCriteriaMet=True/SuccessPolicy Complete=True/SuccessPolicy "

// only ends the pods of some indexes.
func only(indexes string) func(p *corev1.Pod) (int32, []corev1.PodCondition) {
	return func(p *corev1.Pod) (int32, []corev1.PodCondition) {
		if strings.Contains(indexes, index(p)) {
			return 0, nil
		}
		return -1, nil
	}
}

func successAll(c jobCluster) {
	c.create(work(indexed(2, 2), success(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("0-1")})))
	c.run(succeed)
	c.ended(metPolicy + "2 succeeded 0 failed")
}

func successSome(c jobCluster) {
	c.create(work(indexed(5, 5), success(batchv1.SuccessPolicyRule{SucceededIndexes: ptr.To("0-1")})))
	c.run(only("01"))
	if j := c.ended(metPolicy + "2 succeeded 3 failed"); j.Status.CompletedIndexes != "0,1" {
		c.t.Errorf("completed are %s", j.Status.CompletedIndexes)
	}
	c.active(0)
}

func successCount(c jobCluster) {
	c.create(work(indexed(5, 5), success(batchv1.SuccessPolicyRule{SucceededCount: ptr.To[int32](2), SucceededIndexes: ptr.To("1-3")})))
	c.run(only("013"))
	if j := c.ended(metPolicy + "3 succeeded 2 failed"); j.Status.CompletedIndexes != "0,1,3" {
		c.t.Logf("completed are %s", j.Status.CompletedIndexes) // index 0 may have been later than the decision
	}
}

func adoption(c jobCluster) {
	j := c.create(work(func(j *batchv1.Job) { j.Spec.Parallelism, j.Spec.Completions = ptr.To[int32](2), ptr.To[int32](4) }))
	p := c.active(2)[0]
	c.patchPod(p, `{"metadata":{"ownerReferences":null,"finalizers":null}}`)
	c.Eventually("the orphan is adopted", func(ctx context.Context) error {
		got, err := c.Client.CoreV1().Pods(c.namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err == nil && (!metav1.IsControlledBy(got, j) || len(got.Finalizers) != 1) {
			err = fmt.Errorf("owners %v, finalizers %v", got.OwnerReferences, got.Finalizers)
		}
		return err
	})
	c.patchPod(p, `{"metadata":{"labels":null}}`)
	c.Eventually("the pod is let go", func(ctx context.Context) error {
		got, err := c.Client.CoreV1().Pods(c.namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if err == nil && len(got.OwnerReferences)+len(got.Finalizers) != 0 {
			err = fmt.Errorf("owners %v, finalizers %v", got.OwnerReferences, got.Finalizers)
		}
		return err
	})
	c.active(2)
	c.run(succeed)
	c.ended(complete + "4 succeeded 0 failed")
}

func (c jobCluster) patchPod(p *corev1.Pod, patch string) {
	c.t.Helper()
	if _, err := c.Client.CoreV1().Pods(c.namespace).Patch(c.t.Context(), p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func deletion(c jobCluster) {
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		c.create(work())
		p := c.active(1)[0]
		if err := c.Client.BatchV1().Jobs(c.namespace).Delete(c.t.Context(), "work", metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
			c.t.Fatal(err)
		}
		c.Eventually(fmt.Sprintf("the Job is deleted: %s", how), func(ctx context.Context) error {
			if _, err := c.Client.BatchV1().Jobs(c.namespace).Get(ctx, "work", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("reading the Job gives %w", err)
			}
			got, err := c.Client.CoreV1().Pods(c.namespace).Get(ctx, p.Name, metav1.GetOptions{})
			switch {
			case how != metav1.DeletePropagationOrphan && apierrors.IsNotFound(err):
				return nil
			case how == metav1.DeletePropagationOrphan && err == nil && len(got.Finalizers) == 0 && len(got.OwnerReferences) == 0:
				return c.Client.CoreV1().Pods(c.namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
			}
			return fmt.Errorf("reading the pod gives %v, %w", got.ObjectMeta, err)
		})
		c.active(0)
	}
}

func ttl(c jobCluster) {
	c.create(work(func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = new(int32) }))
	p := c.active(1)[0]
	c.end(p, 0)
	c.Eventually("Job and pod are deleted", func(ctx context.Context) error {
		_, err := c.Client.BatchV1().Jobs(c.namespace).Get(ctx, "work", metav1.GetOptions{})
		_, of := c.Client.CoreV1().Pods(c.namespace).Get(ctx, p.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(of) {
			return fmt.Errorf("reading the Job gives %w, the pod %w", err, of)
		}
		return nil
	})
}

func managed(c jobCluster) {
	c.create(work(func(j *batchv1.Job) { j.Name, j.Spec.ManagedBy = "foreign", ptr.To("example.com/queue") }))
	c.create(work())
	c.run(succeed) // by then the other one would have been seen to
	j, err := c.Client.BatchV1().Jobs(c.namespace).Get(c.t.Context(), "foreign", metav1.GetOptions{})
	if err != nil || j.Status.StartTime != nil || j.Status.UncountedTerminatedPods != nil {
		c.t.Errorf("a Job of another controller has the status %+v, %v", j.Status, err)
	}
}

func status(c jobCluster) {
	c.create(work(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) }))
	at := metav1.Now().Rfc3339Copy()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"patched":"yes"}},"status":{"startTime":%q}}`, at.UTC().Format(time.RFC3339))
	j, err := c.Client.BatchV1().Jobs(c.namespace).Patch(c.t.Context(), "work", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil || !j.Status.StartTime.Equal(&at) || j.Annotations["patched"] != "yes" {
		c.t.Fatalf("the patched status is %+v, %v", j, err)
	}
	c.Eventually("a condition is added", func(ctx context.Context) error {
		j, err := c.Client.BatchV1().Jobs(c.namespace).Get(ctx, "work", metav1.GetOptions{})
		if err != nil {
			return err
		}
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: "Seen", Status: corev1.ConditionTrue, Reason: "Test"})
		_, err = c.Client.BatchV1().Jobs(c.namespace).UpdateStatus(ctx, j, metav1.UpdateOptions{})
		return err
	})
	c.patch(`{"spec":{"suspend":false}}`)
	c.run(succeed)
	if j := c.job("it ended", func(*batchv1.Job) error { return nil }); !jobfacts.Is(j, "Seen") {
		c.t.Errorf("the condition of another is gone: %+v", j.Status.Conditions)
	}
}

func elastic(c jobCluster) {
	c.create(work(indexed(3, 3)))
	c.active(3)
	c.run(func(p *corev1.Pod) (int32, []corev1.PodCondition) {
		if index(p) == "2" {
			c.patch(`{"spec":{"completions":2,"parallelism":2}}`)
			return -1, nil
		}
		return 0, nil
	})
	if j := c.ended(complete + "2 succeeded 0 failed"); j.Status.CompletedIndexes != "0,1" {
		c.t.Errorf("completed are %s", j.Status.CompletedIndexes)
	}
}

func replacement(c jobCluster) {
	c.create(work(func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed) }))
	p := c.active(1)[0]
	c.bind(p) // one without a node ends as soon as it is deleted
	c.patchPod(p, `{"metadata":{"finalizers":["batch.kubernetes.io/job-tracking","example.com/held"]}}`)
	if err := c.Client.CoreV1().Pods(c.namespace).Delete(c.t.Context(), p.Name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.job("the pod terminates", func(j *batchv1.Job) error {
		if j.Status.Active != 0 || ptr.Deref(j.Status.Terminating, 0) != 1 || j.Status.Failed != 0 {
			return fmt.Errorf("not so")
		}
		return nil
	})
	c.active(0)
	p, err := c.Client.CoreV1().Pods(c.namespace).Get(c.t.Context(), p.Name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.end(p, 1)
	c.active(1)
	c.patchPod(p, `{"metadata":{"finalizers":null}}`)
	c.run(succeed)
	c.ended(complete + "1 succeeded 1 failed")
}

// TestJobRestart stops the server in the middle of the counting.
func TestJobRestart(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	c := jobCluster{e, t, metav1.NamespaceDefault}
	c.create(work(func(j *batchv1.Job) {
		j.Spec.Completions, j.Spec.Parallelism, j.Spec.BackoffLimit = ptr.To[int32](12), ptr.To[int32](6), ptr.To[int32](100)
	}))
	for i, p := range c.active(6) {
		c.end(p, int32(i%2))
	}
	e.Restart()
	c.run(succeed)
	c.ended(complete + "12 succeeded 3 failed")
}
