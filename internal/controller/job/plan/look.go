package plan

import (
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/indexset"
	"github.com/everynode/everynode/internal/objects/job"
	"github.com/everynode/everynode/internal/objects/pod"
)

// noIndex is the index of pods that have none, or one that cannot be read.
const noIndex = -1

// sight is what there is, sorted by what it means.
type sight struct {
	Input
	indexed      bool
	completions  int // of an Indexed Job
	active       []*corev1.Pod
	terminating  []*corev1.Pod
	ready        int32
	inSucceeded  map[types.UID]bool // the uncounted ones of the status
	inFailed     map[types.UID]bool
	succeeded    int // in all, counted or not
	failed       int
	doneBefore   indexset.Set
	done         indexset.Set
	lost         indexset.Set
	perIndex     bool
	awaited      map[int]*corev1.Pod // failed pods that a pod of their index is to replace
	end          *batchv1.JobCondition
	failures     Failures
	replaceEnded bool
}

// look sorts what there is, and says whether the Job is to end.
func look(in Input) *sight {
	s := &sight{
		Input: in, indexed: job.IsIndexed(in.Job), completions: int(ptr.Deref(in.Job.Spec.Completions, 0)),
		perIndex: in.Job.Spec.BackoffLimitPerIndex != nil, failures: in.Failures.Remember(in.Job, in.Pods),
		replaceEnded: ptr.Deref(in.Job.Spec.PodReplacementPolicy, "") == batchv1.Failed,
	}
	s.inSucceeded, s.inFailed = uncounted(in.Job)
	for _, p := range in.Pods {
		switch {
		case pod.IsTerminal(p):
		case pod.IsTerminating(p):
			s.terminating = append(s.terminating, p)
		default:
			s.active = append(s.active, p)
			if pod.IsReady(p) {
				s.ready++
			}
		}
	}
	s.count()
	if s.indexed {
		s.lookAtIndexes()
	}
	s.end = s.ending()
	return s
}

func uncounted(j *batchv1.Job) (succeeded, failed map[types.UID]bool) {
	succeeded, failed = map[types.UID]bool{}, map[types.UID]bool{}
	if u := j.Status.UncountedTerminatedPods; u != nil {
		for _, uid := range u.Succeeded {
			succeeded[uid] = true
		}
		for _, uid := range u.Failed {
			failed[uid] = true
		}
	}
	return succeeded, failed
}

// count says how many pods have succeeded and failed in all.
func (s *sight) count() {
	s.succeeded, s.failed = int(s.Job.Status.Succeeded)+len(s.inSucceeded), int(s.Job.Status.Failed)+len(s.inFailed)
	for _, p := range s.Pods {
		if !isTracked(p) || !s.valid(p) {
			continue
		}
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			if !s.inSucceeded[p.UID] && !s.inFailed[p.UID] {
				s.succeeded++
			}
		case hasFailed(s.Job, p) && !s.inFailed[p.UID] && counts(s.Job, p):
			s.failed++
		}
	}
}

// isTracked reports whether a pod waits to be counted.
func isTracked(p *corev1.Pod) bool {
	return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer)
}

func tracked(pods []*corev1.Pod) (out []*corev1.Pod) {
	for _, p := range pods {
		if isTracked(p) {
			out = append(out, p)
		}
	}
	return out
}

// hasFailed reports whether a pod counts as failed. One that is being deleted does,
// unless the Job waits until its pods are really over: it may never get to say how
// it ended.
func hasFailed(j *batchv1.Job, p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed {
		return true
	}
	return ptr.Deref(j.Spec.PodReplacementPolicy, "") != batchv1.Failed && pod.IsTerminating(p) &&
		p.Status.Phase != corev1.PodSucceeded
}

// valid reports whether a pod may count: of an Indexed Job those with an index that
// there is.
func (s *sight) valid(p *corev1.Pod) bool {
	if !s.indexed {
		return true
	}
	i := indexOf(p)
	return i != noIndex && i < s.completions
}

func indexOf(p *corev1.Pod) int {
	i, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || i < 0 {
		return noIndex
	}
	return i
}

func indexesOf(pods []*corev1.Pod) indexset.Set {
	var out []int
	for _, p := range pods {
		if i := indexOf(p); i != noIndex {
			out = append(out, i)
		}
	}
	return indexset.Of(out...)
}

// lookAtIndexes says which indexes are done, which are lost, and which failed pods
// stay until a pod of their index is there, which carries on the number of failures.
func (s *sight) lookAtIndexes() {
	var done, lost []int
	for _, p := range s.Pods {
		if !isTracked(p) || !s.valid(p) {
			continue
		}
		if p.Status.Phase == corev1.PodSucceeded && !s.inFailed[p.UID] {
			done = append(done, indexOf(p))
		}
		if s.perIndex && losesIndex(s.Job, p) {
			lost = append(lost, indexOf(p))
		}
	}
	s.doneBefore = indexset.Read(s.Job.Status.CompletedIndexes, s.completions)
	s.done = s.doneBefore.Union(indexset.Of(done...))
	s.succeeded = s.done.Len()
	if !s.perIndex {
		return
	}
	s.lost = indexset.Read(ptr.Deref(s.Job.Status.FailedIndexes, ""), s.completions)
	for _, i := range indexset.Of(lost...) {
		for k := i.First; k <= i.Last; k++ {
			if !s.done.Has(k) {
				s.lost = s.lost.Union(indexset.Of(k))
			}
		}
	}
	s.lookForAwaited()
}

func (s *sight) lookForAwaited() {
	s.awaited = map[int]*corev1.Pod{}
	settled := indexesOf(s.active).Union(s.done).Union(s.lost)
	for _, p := range s.Pods {
		i := indexOf(p)
		if !isTracked(p) || !s.valid(p) || !hasFailed(s.Job, p) || settled.Has(i) {
			continue
		}
		if before := s.awaited[i]; before == nil ||
			failuresBefore(before) <= failuresBefore(p) && !endOf(p).Before(endOf(before)) {
			s.awaited[i] = p
		}
	}
}

// losesIndex reports whether the end of a pod is the end of its index.
func losesIndex(j *batchv1.Job, p *corev1.Pod) bool {
	if !hasFailed(j, p) {
		return false
	}
	m := match(j, p)
	if m.action == batchv1.PodFailurePolicyActionFailIndex {
		return true
	}
	return m.action != batchv1.PodFailurePolicyActionIgnore &&
		number(p, batchv1.JobIndexFailureCountAnnotation) >= *j.Spec.BackoffLimitPerIndex
}

func number(p *corev1.Pod, annotation string) int32 {
	n, err := strconv.ParseInt(p.Annotations[annotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

// failuresBefore is how many pods of a pod's index failed before it, those included
// that do not count.
func failuresBefore(p *corev1.Pod) int32 {
	return number(p, batchv1.JobIndexFailureCountAnnotation) + number(p, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// deadline is when the Job must be over; the zero time for never. The time of one
// that was suspended begins again with the status that says that it is no longer.
func (s *sight) deadline() time.Time {
	limit, start := s.Job.Spec.ActiveDeadlineSeconds, s.Job.Status.StartTime
	if limit == nil || start == nil || job.IsSuspended(s.Job) || job.Is(s.Job, batchv1.JobSuspended) {
		return time.Time{}
	}
	return start.Add(time.Duration(*limit) * time.Second)
}
