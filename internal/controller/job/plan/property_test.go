package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/objects/job"
	"github.com/everynode/everynode/internal/objects/pod"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// world is an API with one Job: what is stored, and the truth about each pod, kept
// without looking at what the controller says.
type world struct {
	rt       *rapid.T
	job      *batchv1.Job
	pods     []*corev1.Pod
	now      time.Time
	failures Failures // what the controller's process remembers
	made     int
	// succeeded and failed are the pods that ended while they were to be counted, and
	// were not being deleted. Others are cut: how they count depends on whether they
	// come to say how they ended.
	succeeded, failed, cut map[types.UID]bool
	bad                    map[int]int // how many pods of an index failed or were cut
	mostActive             int
	over                   bool
}

// find returns the stored pod, if it is there.
func (w *world) find(uid types.UID) *corev1.Pod {
	for _, p := range w.pods {
		if p.UID == uid {
			return p
		}
	}
	return nil
}

// sweep removes what is deleted and held by nothing.
func (w *world) sweep() {
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil && len(p.Finalizers) == 0 && pod.IsTerminal(p)
	})
}

// ended notes the truth about a pod that has just ended, or been deleted.
func (w *world) ended(p *corev1.Pod) {
	if !isTracked(p) || w.succeeded[p.UID] || w.failed[p.UID] || w.cut[p.UID] {
		return
	}
	patient := ptr.Deref(w.job.Spec.PodReplacementPolicy, "") == batchv1.Failed && !job.Is(w.job, batchv1.JobFailureTarget)
	switch {
	case p.DeletionTimestamp != nil && (!patient || pod.IsTerminal(p)):
		w.cut[p.UID] = true
		w.bad[indexOf(p)]++
	case p.Status.Phase == corev1.PodSucceeded:
		w.succeeded[p.UID] = true
	case p.Status.Phase == corev1.PodFailed:
		w.failed[p.UID] = true
		w.bad[indexOf(p)]++
	}
}

func (w *world) delete(p *corev1.Pod) {
	if p.DeletionTimestamp == nil {
		p.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
	}
}

func (w *world) finish(p *corev1.Pod, phase corev1.PodPhase) {
	if pod.IsTerminal(p) {
		return
	}
	p.Status.Phase = phase
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(w.now)}}}}
	w.ended(p)
}

func letGoOf(p *corev1.Pod) {
	p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
}

// write carries out a step, all of it or a beginning.
func (w *world) write(s Step, limit int) {
	switch {
	case s.Status != nil:
		w.job.Status = *s.Status.DeepCopy()
	case s.Create != nil:
		for _, c := range s.Create[:min(limit, len(s.Create))] {
			if bad := w.bad[c.Index]; c.Counts && bad >= 0 && int(c.Failures) != bad {
				w.rt.Fatalf("a pod of index %d is made after %d failures; there were %d", c.Index, c.Failures, bad)
			}
			p := Pod(w.job, c)
			w.made++
			p.UID, p.Name, p.CreationTimestamp = types.UID(fmt.Sprint("pod-", w.made)), fmt.Sprint(p.GenerateName, w.made), metav1.NewTime(w.now)
			p.Status.Phase = corev1.PodPending
			w.pods = append(w.pods, p)
			w.checkOnePodEach(p)
		}
	case s.Delete != nil:
		for _, p := range s.Delete[:min(limit, len(s.Delete))] {
			stored := w.find(p.UID)
			if stored == nil {
				continue
			}
			if s.Uncounted {
				letGoOf(stored)
				w.bad[indexOf(stored)] -= 1000 // this pod carried on the number, and others may have it or not
			}
			w.delete(stored)
			w.ended(stored)
		}
	default:
		for _, p := range s.Release[:min(limit, len(s.Release))] {
			if stored := w.find(p.UID); stored != nil {
				letGoOf(stored)
			}
		}
	}
	w.sweep()
}

// reconcile does what the shell does, and fails where chance says: a write may not
// happen, or only a part of it, or its answer may be lost; the process may die.
func (w *world) reconcile(reliable bool) {
	hold := false
	for range 30 {
		in := Input{Job: w.job.DeepCopy(), Failures: w.failures, Hold: hold, Now: w.now}
		for _, p := range w.pods {
			in.Pods = append(in.Pods, p.DeepCopy())
		}
		step := Next(in)
		w.failures = in.Failures.Remember(in.Job, in.Pods)
		if step.Status == nil && len(step.Create)+len(step.Delete)+len(step.Release) == 0 {
			return
		}
		limit := 1000
		fate := "done"
		if !reliable {
			fate = rapid.SampledFrom([]string{"done", "done", "done", "done", "half", "lost", "refused", "dies before", "dies after"}).Draw(w.rt, "fate")
		}
		switch fate {
		case "half":
			limit = rapid.IntRange(0, 2).Draw(w.rt, "writes")
		case "refused":
			return
		case "dies before":
			w.failures = Failures{}
			return
		}
		w.write(step, limit)
		w.check()
		switch fate {
		case "lost":
			return
		case "dies after":
			w.failures = Failures{}
			return
		}
		hold = hold || step.Create != nil || step.Delete != nil
	}
	w.rt.Fatalf("the steps do not come to an end; the Job is %+v", w.job.Status)
}

// compare compares the numbers of the status with the truth.
func (w *world) compare(all bool) {
	s, succeeded, failed, cut := w.job.Status, len(w.succeeded), len(w.failed), len(w.cut)
	wrong := int(s.Failed) > failed+cut || all && int(s.Failed) < failed
	if !job.IsIndexed(w.job) {
		sum := int(s.Succeeded + s.Failed)
		wrong = wrong || int(s.Succeeded) > succeeded+cut || sum > succeeded+failed+cut || all && (sum != succeeded+failed+cut || int(s.Succeeded) < succeeded)
	}
	if wrong {
		w.rt.Fatalf("%d pods have succeeded, %d failed, and %d were cut; the status says %d and %d", succeeded, failed, cut, s.Succeeded, s.Failed)
	}
}

// checkOnePodEach checks that a pod is made in place of none that has not ended, if
// the Job waits for that.
func (w *world) checkOnePodEach(p *corev1.Pod) {
	if ptr.Deref(w.job.Spec.PodReplacementPolicy, "") != batchv1.Failed {
		return
	}
	running := 0
	for _, other := range w.pods {
		if pod.IsTerminal(other) {
			continue
		}
		running++
		if job.IsIndexed(w.job) && other != p && indexOf(other) == indexOf(p) {
			w.rt.Fatalf("pod %s is made while %s runs", p.Name, other.Name)
		}
	}
	if running > w.mostActive {
		w.rt.Fatalf("%d pods run, at most %d may", running, w.mostActive)
	}
}

// check is what holds after each write.
func (w *world) check() {
	s := w.job.Status
	for _, p := range w.pods {
		w.ended(p) // the end of the Job is the end of what is on its way out
	}
	w.compare(false)
	if job.Is(w.job, batchv1.JobSuccessCriteriaMet) && job.Is(w.job, batchv1.JobFailureTarget) {
		w.rt.Fatalf("the Job is to succeed and to fail: %v", s.Conditions)
	}
	active := 0
	indexes := map[int]int{}
	for _, p := range w.pods {
		if !pod.IsTerminal(p) && !pod.IsTerminating(p) {
			active++
			if job.IsIndexed(w.job) {
				indexes[indexOf(p)]++
			}
		}
	}
	if active > w.mostActive {
		w.rt.Fatalf("%d pods are active, at most %d were wanted", active, w.mostActive)
	}
	for i, n := range indexes {
		if n > 1 || i >= int(*w.job.Spec.Completions) {
			w.rt.Fatalf("index %d has %d pods", i, n)
		}
	}
	if job.Finished(w.job) == nil {
		return
	}
	if !w.over && job.Is(w.job, batchv1.JobSuspended) && !job.IsSuspended(w.job) {
		w.rt.Fatalf("the Job is over, was resumed, and still is said to be suspended: %v", s.Conditions)
	}
	w.over = true
	if active > 0 || s.Active > 0 || len(s.UncountedTerminatedPods.Failed)+len(s.UncountedTerminatedPods.Succeeded) > 0 {
		w.rt.Fatalf("the Job is over with %d active pods: %+v", active, s)
	}
	if want := w.job.Spec.Completions; job.Is(w.job, batchv1.JobComplete) && want != nil && s.Succeeded < *want {
		w.rt.Fatalf("the Job is complete with %d of %d", s.Succeeded, *want)
	}
}

// All pods that ended are counted, each once, whatever fails and whenever.
func TestEveryPodIsCountedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			w.happen()
		}
		// From here on everything works, and pods succeed.
		for range 400 {
			w.reconcile(true)
			if job.Finished(w.job) != nil {
				break
			}
			w.now = w.now.Add(11 * time.Minute)
			w.job.Spec.Suspend = ptr.To(false)
			for _, p := range w.pods {
				w.finish(p, corev1.PodSucceeded)
			}
			w.sweep()
		}
		end := job.Finished(w.job)
		if end == nil {
			rt.Fatalf("the Job does not end: %+v", w.job.Status)
		}
		w.reconcile(true)
		for _, p := range w.pods {
			if isTracked(p) {
				rt.Fatalf("pod %s is not let go", p.Name)
			}
		}
		w.compare(true)
	})
}

func newWorld(rt *rapid.T) *world {
	parallel := rapid.Int32Range(0, 4).Draw(rt, "parallelism")
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work", Namespace: "ns", UID: "job"}, Spec: batchv1.JobSpec{
		Parallelism: &parallel, BackoffLimit: ptr.To(rapid.Int32Range(0, 6).Draw(rt, "backoffLimit")), Completions: ptr.To(rapid.Int32Range(0, 6).Draw(rt, "completions")),
		PodReplacementPolicy: ptr.To(rapid.SampledFrom([]batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}).Draw(rt, "replacement")),
		CompletionMode:       ptr.To(batchv1.NonIndexedCompletion),
	}}
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	switch rapid.IntRange(0, 3).Draw(rt, "mode") {
	case 0:
		j.Spec.Completions = nil
	case 1:
		j.Spec.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	case 2:
		j.Spec.CompletionMode, j.Spec.BackoffLimitPerIndex = ptr.To(batchv1.IndexedCompletion), ptr.To(rapid.Int32Range(0, 2).Draw(rt, "perIndex"))
	}
	if parallel == 0 {
		*j.Spec.Parallelism = 1
	}
	return &world{rt: rt, job: j, now: noon, succeeded: map[types.UID]bool{}, failed: map[types.UID]bool{}, cut: map[types.UID]bool{}, bad: map[int]int{}, mostActive: int(*j.Spec.Parallelism)}
}

// happen lets something happen.
func (w *world) happen() {
	choose := func() *corev1.Pod {
		if len(w.pods) == 0 {
			return nil
		}
		return rapid.SampledFrom(w.pods).Draw(w.rt, "pod")
	}
	switch what := rapid.SampledFrom([]string{"reconcile", "reconcile", "reconcile", "time", "succeeds", "fails", "deleted", "suspend", "resume", "runs"}).Draw(w.rt, "what"); what {
	case "reconcile":
		w.reconcile(false)
	case "time":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 700).Draw(w.rt, "seconds")) * time.Second)
	case "suspend", "resume":
		w.job.Spec.Suspend = ptr.To(what == "suspend")
	default:
		p := choose()
		switch {
		case p == nil:
		case what == "succeeds":
			w.finish(p, corev1.PodSucceeded)
		case what == "fails":
			w.finish(p, corev1.PodFailed)
		case what == "deleted": // by somebody, or its node is gone
			w.delete(p)
			w.ended(p)
		case !pod.IsTerminal(p):
			p.Status.Phase = corev1.PodRunning
		}
		w.sweep()
	}
}
