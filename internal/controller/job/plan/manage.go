package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/indexset"
	"github.com/everynode/everynode/internal/objects/job"
	"github.com/everynode/everynode/internal/objects/pod"
)

// manage says which pods to delete or create. Deletion goes first.
func (s *sight) manage() Step {
	switch {
	case s.end != nil:
		return Step{Delete: s.active, Reason: fmt.Sprintf("the Job ends: %s", s.end.Reason)}
	case job.IsSuspended(s.Job):
		return Step{Delete: first(s.active, burst), Uncounted: true, Reason: "the Job is suspended"}
	}
	want := s.want()
	if surplus := s.surplus(max(0, len(s.active)-want)); len(surplus) > 0 {
		return Step{
			Delete:    first(surplus, burst),
			Uncounted: true,
			Reason:    fmt.Sprintf("%d pods are active, %d wanted", len(s.active), want),
		}
	}
	missing := min(s.missing(want), burst)
	if missing <= 0 || !s.perIndex && s.Now.Before(s.failures.wait()) {
		return Step{}
	}
	reason := fmt.Sprintf("%d pods are active, %d wanted", len(s.active), want)
	if !s.indexed {
		return Step{Create: slices.Repeat([]Creation{{Index: noIndex}}, missing), Reason: reason}
	}
	var create []Creation
	for _, i := range s.taken().FirstMissing(missing, s.completions) {
		create = append(create, creation(s.Job, i, s.awaited[i]))
	}
	return Step{Create: create, Reason: reason}
}

// missing is how many pods may be made. If only pods that are over are replaced,
// those that are on their way out still count.
func (s *sight) missing(want int) int {
	if s.replaceEnded {
		want -= len(s.terminating)
	}
	return want - len(s.active)
}

// taken is the set of indexes that need no pod now.
func (s *sight) taken() indexset.Set {
	taken := s.done.Union(s.lost).Union(indexesOf(s.active))
	if s.replaceEnded {
		taken = taken.Union(indexesOf(s.terminating))
	}
	var wait []int
	for i, p := range s.awaited {
		if s.Now.Before(waitAfter(p)) {
			wait = append(wait, i)
		}
	}
	return taken.Union(indexset.Of(wait...))
}

// want is how many pods should be active.
func (s *sight) want() int {
	parallel := int(ptr.Deref(s.Job.Spec.Parallelism, 1))
	if s.Job.Spec.Completions == nil {
		if s.succeeded > 0 {
			return len(s.active) // the others may finish what they do
		}
		return parallel
	}
	return max(0, min(parallel, int(*s.Job.Spec.Completions)-s.succeeded))
}

// surplus chooses n active pods to delete, and those in any case that have no index
// that there is, or one that another pod has. Pods that have come less far go first.
func (s *sight) surplus(n int) (out []*corev1.Pod) {
	order := slices.Clone(s.active)
	slices.SortStableFunc(order, func(a, b *corev1.Pod) int {
		return cmp.Or(
			progress(a)-progress(b), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID),
		)
	})
	if s.indexed {
		seen := map[int]bool{}
		var left []*corev1.Pod
		for _, p := range slices.Backward(order) { // of two, the one that came further stays
			if i := indexOf(p); !s.valid(p) || seen[i] {
				out = append(out, p)
			} else {
				seen[i] = true
				left = append(left, p)
			}
		}
		slices.Reverse(left)
		order = left
	}
	return append(out, first(order, n-len(out))...)
}

func progress(p *corev1.Pod) int {
	switch {
	case !pod.IsBound(p):
		return 0
	case p.Status.Phase != corev1.PodRunning:
		return 1
	case !pod.IsReady(p):
		return 2
	}
	return 3
}

func first(pods []*corev1.Pod, n int) []*corev1.Pod { return pods[:max(0, min(n, len(pods)))] }

// next is when something changes by the passing of time.
func (s *sight) next() (next time.Time) {
	sooner := func(t time.Time) {
		if t.After(s.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if s.Job.DeletionTimestamp != nil {
		return next
	}
	sooner(s.deadline())
	if s.end != nil || job.IsSuspended(s.Job) || s.missing(s.want()) <= 0 {
		return next
	}
	if !s.perIndex {
		sooner(s.failures.wait())
		return next
	}
	for _, p := range s.awaited {
		sooner(waitAfter(p))
	}
	return next
}

// Creation is a pod to be made.
type Creation struct {
	// Index is its completion index; -1 if it has none.
	Index int
	// Counts tells that it carries on the numbers of failures of its index.
	Counts            bool
	Failures, Ignored int32
}

func creation(j *batchv1.Job, index int, before *corev1.Pod) Creation {
	c := Creation{Index: index, Counts: j.Spec.BackoffLimitPerIndex != nil}
	if before == nil {
		return c
	}
	c.Failures, c.Ignored = number(before, batchv1.JobIndexFailureCountAnnotation), number(
		before, batchv1.JobIndexIgnoredFailureCountAnnotation,
	)
	if counts(j, before) {
		c.Failures++
	} else {
		c.Ignored++
	}
	return c
}
