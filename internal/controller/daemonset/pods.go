package daemonset

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/btree"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/claim"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
)

// onPod settles whose pod it is and tells the matrix.
func (o *owner) onPod(p *corev1.Pod) {
	switch {
	case o.pods.has(p.UID) && outdated(p, o.pods.all[p.UID]):
	case !concerns(p):
		o.onPodGone(p)
	case o.pods.put(p):
		o.claimPod(p)
	}
}

func (o *owner) claimPod(p *corev1.Pod) {
	uid := ownerOf(p)
	if uid == "" {
		o.claimOrphan(p)
		return
	}
	s := o.sets[uid]
	if s == nil {
		o.core.Step(matrix.ProjectPod(p, uid))
		return
	}
	s.toAdopt.Delete(p)
	switch claim.Judge(s.latest, s.selector, p) {
	case claim.Mine:
		o.core.Step(matrix.ProjectPod(p, uid))
	case claim.Release:
		o.core.Step(matrix.PodGone(p.UID))
		s.toRelease.ReplaceOrInsert(p)
		o.claims[uid] = s
	default:
		o.core.Step(matrix.PodGone(p.UID))
	}
}

// claimOrphan gives the pod to the first DaemonSet, by name, that would take it.
// It fills its cell from now on, before the API knows.
func (o *owner) claimOrphan(p *corev1.Pod) {
	var taker *daemonSet
	for _, s := range o.setsIn[p.Namespace] {
		if s.mayAct() && claim.Judge(s.latest, s.selector, p) == claim.Adopt && (taker == nil || s.latest.Name < taker.latest.Name) {
			taker = s
		}
	}
	if taker == nil {
		o.core.Step(matrix.PodGone(p.UID))
		return
	}
	info := matrix.ProjectPod(p, taker.latest.UID)
	info.Adopting = true
	o.core.Step(info)
	if !taker.adopting[p.UID] {
		taker.toAdopt.ReplaceOrInsert(p)
		o.claims[taker.latest.UID] = taker
	}
}

func (o *owner) onPodGone(p *corev1.Pod) {
	o.pods.drop(p.UID)
	o.core.Step(matrix.PodGone(p.UID))
	hash := p.Labels[appsv1.ControllerRevisionHashLabelKey]
	if s := o.sets[ownerOf(p)]; s != nil && hash != s.revision && o.matrix.PodsOfRevision(s.latest.UID, hash) == 0 {
		o.cleanUp(s)
	}
}

// claimResult is what became of adopting or releasing one pod.
type claimResult struct {
	pod     *corev1.Pod // as we knew it
	updated *corev1.Pod // as the API holds it now, if it was adopted
	verdict claim.Verdict
	err     error
}

// flushClaims sends what is queued, one batch per DaemonSet at a time.
func (o *owner) flushClaims() {
	for uid, s := range o.claims {
		if s.claimJob.waits(o.now) {
			continue
		}
		delete(o.claims, uid)
		adoptions, releases := take(s.toAdopt), take(s.toRelease)
		if len(adoptions)+len(releases) == 0 {
			continue
		}
		s.adopting = map[types.UID]bool{}
		for _, p := range adoptions {
			s.adopting[p.UID] = true
		}
		s.claimJob.busy = true
		ds := s.latest
		o.claimLane.submit(func(ctx context.Context) {
			results := o.exec.claimPods(ctx, ds, adoptions, releases)
			o.buffer.result(func(o *owner) { o.onClaims(uid, results) })
		})
	}
}

// podQueue holds pods in the order of their names.
type podQueue = btree.BTreeG[*corev1.Pod]

func newPodQueue() *podQueue {
	return btree.NewG(16, func(a, b *corev1.Pod) bool {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) < 0
	})
}

// take removes a batch that fits into one job's time.
func take(queue *podQueue) (pods []*corev1.Pod) {
	const batch = 250
	for queue.Len() > 0 && len(pods) < batch {
		p, _ := queue.DeleteMin()
		pods = append(pods, p)
	}
	return pods
}

func byName(pods map[types.UID]*corev1.Pod) []*corev1.Pod {
	return slices.SortedFunc(maps.Values(pods), func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

func (o *owner) onClaims(uid types.UID, results []claimResult) {
	s := o.sets[uid]
	if s == nil {
		return
	}
	s.claimJob.busy, s.adopting = false, map[types.UID]bool{}
	failed := false
	for _, r := range results {
		switch {
		case !o.pods.has(r.pod.UID):
		case r.err == nil && r.updated != nil:
			o.onPod(r.updated)
		case r.err == nil, vanished(r.err), errors.Is(r.err, errNotOurs):
			if r.verdict == claim.Adopt && ownerOf(o.pods.all[r.pod.UID]) == "" {
				o.core.Step(matrix.PodGone(r.pod.UID))
			}
		default:
			failed = true
			o.log.V(2).Info("Cannot claim pod", "pod", klog.KObj(r.pod), "err", r.err)
			o.claimPod(o.pods.all[r.pod.UID])
		}
	}
	s.claimJob.finished(failed, o.now)
	if failed {
		o.retryAt(uid, s.claimJob.retryAt)
	}
	if s.toAdopt.Len()+s.toRelease.Len() > 0 {
		o.claims[uid] = s
	}
}

// jobState is a kind of job of which a DaemonSet has at most one at a time.
type jobState struct {
	busy     bool
	failures int
	retryAt  time.Time
}

// waits tells whether one is under way or must not begin yet.
func (j *jobState) waits(now time.Time) bool { return j.busy || j.retryAt.After(now) }

// finished notes the end of a job and, after a failure, when to try again.
func (j *jobState) finished(failed bool, now time.Time) {
	j.busy = false
	if !failed {
		j.failures, j.retryAt = 0, time.Time{}
		return
	}
	j.failures++
	j.retryAt = now.Add(min(10*time.Millisecond<<min(j.failures, 12), 30*time.Second))
}
