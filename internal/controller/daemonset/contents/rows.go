package contents

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Step takes an event for the matrix in, and passes it on.
func (b *Book) Step(e matrix.Event) {
	switch e := e.(type) {
	case fact.Rollout:
		b.onRollout(e)
	case fact.RolloutGone:
		b.onRolloutGone(types.UID(e))
	case fact.DaemonSet:
		s := b.set(e.UID)
		s.info = &e
		b.rename(e.UID, s)
		b.settle(s)
	case fact.Pod:
		b.onPod(e)
	case fact.PodGone:
		b.unmark(types.UID(e))
		b.rows.Step(e)
	default:
		b.rows.Step(e)
	}
}

func (b *Book) onRollout(e fact.Rollout) {
	s := b.set(e.UID)
	b.moved = true
	s.rollout = &e
	s.sure = s.sure || e.Policy != nil
	s.unsure = !s.sure && (s.unsure || e.Status == nil || speaksOfContent(e.Status))
	if e.Policy != nil {
		s.rules = e.Policy.Content
		if s.rules == nil {
			s.why, s.first = "", "" // what is not wanted hinders nothing
		}
	}
	b.rename(e.UID, s)
	if s.rules != nil {
		s.refsOf = nil // what is excluded may be another now
	}
	b.tellRollout(s)
	if s.told != nil {
		b.settle(s)
	}
}

// speaksOfContent reports whether a revision of a rollout has content.
func speaksOfContent(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return content.IDOf(s.StableRevision) != "" || content.IDOf(s.TargetRevision) != ""
}

// tellRollout tells which policy is followed. One whose content cannot be is not.
func (b *Book) tellRollout(s *set) {
	info := *s.rollout
	if s.why != "" && info.Policy != nil {
		info.Policy, info.Following, info.Why = nil, lost, s.why
	}
	b.rows.Step(info)
}

func (b *Book) onRolloutGone(uid types.UID) {
	b.rows.Step(fact.RolloutGone(uid))
	s := b.sets[uid]
	if s == nil {
		return
	}
	b.moved = true
	s.rollout, s.rules, s.why, s.first = nil, nil, "", ""
	s.unsure, s.sure = false, false
	b.rename(uid, s)
	if s.told != nil {
		b.settle(s)
	}
}

// onPod keeps which content a pod has. Where content is no part of a revision, the pod is one of its template.
func (b *Book) onPod(p fact.Pod) {
	if content.IDOf(p.Revision) == "" {
		b.unmark(p.UID)
		b.rows.Step(p)
		return
	}
	if old, is := b.marked[p.UID]; !is || old != (mark{p.Owner, p.Revision}) {
		b.unmark(p.UID)
		b.mark(p.UID, mark{p.Owner, p.Revision})
	}
	p.Revision = b.as(p.Owner, p.Revision)
	b.rows.Step(p)
}

func (b *Book) mark(pod types.UID, m mark) {
	if b.counts[m.owner] == nil {
		b.counts[m.owner] = map[string]int{}
		b.moved = true
	}
	b.marked[pod] = m
	b.counts[m.owner][m.revision]++
	s := b.sets[m.owner]
	if s != nil && s.known[content.IDOf(m.revision)] == nil {
		b.dirty[m.owner] = true // nobody knows which copies it needs
	}
}

func (b *Book) unmark(pod types.UID) {
	m, is := b.marked[pod]
	if !is {
		return
	}
	delete(b.marked, pod)
	counts := b.counts[m.owner]
	counts[m.revision]--
	if counts[m.revision] > 0 {
		return
	}
	delete(counts, m.revision)
	if len(counts) == 0 {
		delete(b.counts, m.owner)
		b.moved = true
	}
	b.dirty[m.owner] = true
}

// Pod returns what was last told about a pod.
func (b *Book) Pod(uid types.UID) (fact.Pod, bool) {
	info, known := b.rows.Pod(uid)
	if m, is := b.marked[uid]; is {
		info.Revision = m.revision
	}
	return info, known
}

// Pods returns the UIDs of all pods that are known.
func (b *Book) Pods() []types.UID { return b.rows.Pods() }

// Rollout is where the rollout of a DaemonSet stands.
func (b *Book) Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	return b.rows.Rollout(uid)
}

// Makes are the revisions of which pods may still have to be made.
func (b *Book) Makes(uid types.UID) []string {
	st, _ := b.rollout(uid)
	return append(b.rows.Makes(uid), st.StableRevision, st.TargetRevision)
}

// rollout is where the rollout of a DaemonSet stands, or stood when it was stored.
func (b *Book) rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	if st, known := b.rows.Rollout(uid); known {
		return st, true
	}
	if s := b.sets[uid]; s != nil && s.rollout != nil && s.rollout.Status != nil {
		return *s.rollout.Status, true
	}
	return v1alpha1.DaemonSetRolloutStatus{}, false
}
