package belongings

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/google/btree"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/objects/claim"
)

// onPod settles whose pod it is and tells the matrix.
func (b *Book) onPod(p *corev1.Pod) {
	switch {
	case b.pods.has(p.UID) && outdated(p, b.pods.all[p.UID]):
	case !Concerns(p):
		b.onPodGone(p)
	case b.pods.put(p):
		b.claimPod(p)
	}
}

func (b *Book) claimPod(p *corev1.Pod) {
	uid := OwnerOf(p)
	if uid == "" {
		b.claimOrphan(p)
		return
	}
	s := b.sets[uid]
	if s == nil {
		b.rows.Step(b.factOf(p, uid))
		return
	}
	s.toAdopt.Delete(p)
	switch claim.Judge(s.latest, s.selector, p) {
	case claim.Mine:
		b.rows.Step(b.factOf(p, uid))
	case claim.Release:
		b.rows.Step(fact.PodGone(p.UID))
		s.toRelease.ReplaceOrInsert(p)
		b.claims[uid] = s
	default:
		b.rows.Step(fact.PodGone(p.UID))
	}
}

// claimOrphan gives the pod to the first DaemonSet, by name, that would take it.
// It fills its cell from now on, before the API knows.
func (b *Book) claimOrphan(p *corev1.Pod) {
	var taker *daemonSet
	for _, s := range b.setsIn[p.Namespace] {
		if s.mayAct() && claim.Judge(s.latest, s.selector, p) == claim.Adopt &&
			(taker == nil || s.latest.Name < taker.latest.Name) {
			taker = s
		}
	}
	if taker == nil {
		b.rows.Step(fact.PodGone(p.UID))
		return
	}
	info := b.factOf(p, taker.latest.UID)
	info.Adopting = true
	b.rows.Step(info)
	if !taker.adopting[p.UID] {
		taker.toAdopt.ReplaceOrInsert(p)
		b.claims[taker.latest.UID] = taker
	}
}

// factOf is what the matrix is told of a pod, as one of that DaemonSet.
func (b *Book) factOf(p *corev1.Pod, owner types.UID) fact.Pod {
	info := fact.OfPod(p, owner)
	if b.Live {
		info.Point(p)
		info.Fetch = fetch.ReportOf(p)
	}
	info.Resize(p)
	return info
}

func (b *Book) onPodGone(p *corev1.Pod) {
	b.pods.drop(p.UID)
	b.rows.Step(fact.PodGone(p.UID))
	hash := p.Labels[appsv1.ControllerRevisionHashLabelKey]
	if s := b.sets[OwnerOf(p)]; s != nil && hash != s.revision && b.rows.PodsOfRevision(s.latest.UID, hash) == 0 {
		b.cleanUp(s)
	}
}

// flushClaims sends what is queued, one batch per DaemonSet at a time.
func (b *Book) flushClaims() {
	for uid, s := range b.claims {
		if s.claimJob.waits(b.now) {
			continue
		}
		delete(b.claims, uid)
		adoptions, releases := take(s.toAdopt), take(s.toRelease)
		if len(adoptions)+len(releases) == 0 {
			continue
		}
		s.adopting = map[types.UID]bool{}
		for _, p := range adoptions {
			s.adopting[p.UID] = true
		}
		s.claimJob.busy = true
		b.jobs = append(b.jobs, &ClaimJob{DaemonSet: s.latest, Adopt: adoptions, Release: releases})
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

func (b *Book) onClaims(result ClaimResult) {
	uid := result.Job.DaemonSet.UID
	s := b.sets[uid]
	if s == nil {
		return
	}
	s.claimJob.busy, s.adopting = false, map[types.UID]bool{}
	failed := false
	for _, r := range result.Pods {
		switch {
		case !b.pods.has(r.Pod.UID):
		case r.Failed:
			failed = true
			b.claimPod(b.pods.all[r.Pod.UID])
		case r.Updated != nil:
			b.onPod(r.Updated)
		case r.Adopted && OwnerOf(b.pods.all[r.Pod.UID]) == "":
			b.rows.Step(fact.PodGone(r.Pod.UID))
		}
	}
	s.claimJob.finished(failed, b.now)
	if failed {
		b.retryAt(uid, s.claimJob.retryAt)
	}
	if s.toAdopt.Len()+s.toRelease.Len() > 0 {
		b.claims[uid] = s
	}
}

// jobState is a kind of job of which a DaemonSet has at most one at a time.
type jobState struct {
	busy     bool
	failures int
	retryAt  time.Time
}

// waits reports whether one is under way or must not begin yet.
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
