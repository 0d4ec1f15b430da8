package plan

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/pod"
)

// After a failed pod the next one waits, twice as long each time.
const (
	firstWait   = 10 * time.Second
	longestWait = 10 * time.Minute
	// tellsAll is how many failures give the longest wait.
	tellsAll = 8
)

// Failures is what is known of pods of a Job that failed after the last one that
// succeeded. The zero value knows of none. It says the same however often it is told
// of a pod.
type Failures struct {
	success time.Time
	pods    []failure // the last ones, in the order in which they ended
}

type failure struct {
	pod types.UID
	at  time.Time
}

// Remember returns what is known with the pods that there are.
func (f Failures) Remember(j *batchv1.Job, pods []*corev1.Pod) Failures {
	out := Failures{f.success, slices.Clone(f.pods)}
	for _, p := range pods {
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			if at := endOf(p); at.After(out.success) {
				out.success = at
			}
		case !hasFailed(j, p) || !isTracked(p) && pod.IsTerminating(p): // the latter was not wanted any more
		case !slices.ContainsFunc(out.pods, func(known failure) bool { return known.pod == p.UID }):
			out.pods = append(out.pods, failure{p.UID, endOf(p)})
		}
	}
	out.pods = slices.DeleteFunc(out.pods, func(x failure) bool { return !x.at.After(out.success) })
	slices.SortStableFunc(out.pods, func(a, b failure) int { return a.at.Compare(b.at) })
	out.pods = out.pods[max(0, len(out.pods)-tellsAll):]
	return out
}

// wait is until when no pod is made.
func (f Failures) wait() time.Time {
	if len(f.pods) == 0 {
		return time.Time{}
	}
	return f.pods[len(f.pods)-1].at.Add(waitFor(len(f.pods)))
}

// waitAfter is until when a pod of an index is not replaced; the zero time if there
// is none.
func waitAfter(p *corev1.Pod) time.Time {
	if p == nil {
		return time.Time{}
	}
	return endOf(p).Add(waitFor(int(failuresBefore(p)) + 1))
}

func waitFor(failures int) time.Duration {
	return min(longestWait, firstWait<<min(failures-1, tellsAll))
}

// endOf is when a pod ended, as well as one can tell.
func endOf(p *corev1.Pod) time.Time {
	if at := containersEnded(p); !at.IsZero() {
		return at
	}
	if c := pod.Condition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse &&
		!c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if p.DeletionTimestamp != nil {
		return p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
	return p.CreationTimestamp.Time
}

// containersEnded is when the last container ended; the zero time if not all have
// said when. Sidecars end after the others.
func containersEnded(p *corev1.Pod) (last time.Time) {
	sidecars := map[string]bool{}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		sidecars[c.Name] = pod.IsSidecar(c)
	}
	all := slices.Clone(p.Status.ContainerStatuses)
	for _, c := range p.Status.InitContainerStatuses {
		if sidecars[c.Name] {
			all = append(all, c)
		}
	}
	for i := range all {
		end := all[i].State.Terminated
		if end == nil || end.FinishedAt.IsZero() {
			return time.Time{}
		}
		if end.FinishedAt.After(last) {
			last = end.FinishedAt.Time
		}
	}
	return last
}
